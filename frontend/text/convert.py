"""`python -m octavo.frontend.text.convert FOLDER TARGET`: write a `tokenizer.json` for older tokenizer files.

A program of its own because transformers does the work, and a frontend never imports it.
"""

import sys


def main(arguments: list[str]) -> None:
    """Convert the tokenizer of the folder `arguments[0]` into the folder `arguments[1]`."""
    from transformers import AutoTokenizer

    source, target = arguments
    tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True)
    tokenizer.save_pretrained(target)


if __name__ == "__main__":
    main(sys.argv[1:])
