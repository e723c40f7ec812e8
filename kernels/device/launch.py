"""Launch options that several kernels share."""


def pdl_options(pdl: bool) -> dict[str, bool]:
    """Keyword arguments of a launch with programmatic dependent launch, empty without it.

    The kernel then starts while its predecessor on the stream still runs, and must execute `gdc_wait` before
    it touches anything that the predecessor writes. Only for pairs of kernels that are both of this package.
    """
    return {"launch_pdl": True} if pdl else {}
