"""The frozen configuration of a frontend process: a JSON file in the run directory."""

import msgspec


class FrontendConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that a frontend is told."""

    run_dir: str  # private directory for sockets, metrics files and error lines
    scheduler_endpoint: str  # where the scheduler's clients connect
    lifeline_fd: int  # read end of the parent's pipe
    parent_pid: int
    index: int = 0  # of this frontend among those that share the port
    listen_fds: tuple[int, ...] = ()  # listening sockets inherited from the parent; host and port go unused
    host: str = "127.0.0.1"  # bound by the process itself when it inherits no socket
    port: int = 8000
    model_path: str  # local folder: tokenizer, chat templates, generation config
    served_names: tuple[str, ...]  # names a request may ask for; answers carry the one that was asked for
    max_model_len: int = 0  # tokens of prompt and output; 0: what the scheduler says, for display
    api_keys: tuple[str, ...] = ()  # empty: no key is asked for
    protect_metrics: bool = False  # ask for a key at /metrics too
    request_timeout: float = 0.0  # seconds a request may take; 0: no bound
    shutdown_timeout: float = 30.0  # seconds that running requests get after SIGTERM
    head_timeout: float = 10.0  # seconds for a request's head to arrive, from when the connection is there
    body_timeout: float = 60.0  # seconds for the body behind it
    max_body_bytes: int = 32 << 20  # what decodes within half a second, in whatever shape it comes
    ignore_unknown_fields: bool = False
    trust_request_chat_template: bool = False  # accept a chat template that a request brings
    tool_call_parser: str = "auto"  # how the model writes calls of tools; auto: by its chat template
    reasoning_parser: str = "auto"  # how the model writes reasoning; auto: by its chat template
    allowed_origins: tuple[str, ...] = ()  # CORS; "*" for all
    metrics_prefix: str = "octavo_"  # of the names at /metrics
    most_behind: int = 16  # messages of the scheduler: beyond, several tokens of a stream become one frame
    access_log: bool = False  # a line for each request
    log_level: str = "INFO"
