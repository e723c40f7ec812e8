"""What a running frontend must not load."""

import subprocess
import sys

HEAVY = ("torch", "transformers", "numpy", "gguf")


def test_text_imports_neither_torch_nor_transformers() -> None:
    program = f"import octavo.frontend.text, sys; print([name for name in {HEAVY} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
