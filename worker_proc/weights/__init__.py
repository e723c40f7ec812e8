"""From a checkpoint on disk to the tensors of a model.

Everything that can be wrong with a checkpoint is found in file headers before a byte of weights is read, and
each error names the tensor or the file. Only safetensors are read: a pickle can run code.
"""

from .dummy import fill_dummy
from .files import weight_files
from .load import load_weights
from .safetensors_header import checkpoint_dtype, read_header

__all__ = ["checkpoint_dtype", "fill_dummy", "load_weights", "read_header", "weight_files"]
