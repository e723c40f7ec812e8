"""Models that the CUDA runner cannot run are refused before anything is loaded."""

from pathlib import Path

import pytest

from octavo.protocol.errors import ModelError

from ...support.cuda_runner import make_cuda_runner
from ...support.random_models import make_random_model

SIZES = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"architectures": ["MixtralForCausalLM"], "model_type": "mixtral"}, "MixtralForCausalLM"),
        ({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe"}, "Qwen3MoeForCausalLM"),
    ],
)
def test_what_runs_on_the_cpu_alone_is_refused_by_name(
    tmp_path: Path, config: dict[str, object], named: str
) -> None:
    make_random_model(tmp_path, SIZES | config)
    with pytest.raises(ModelError, match=f"{named}.*--device cpu"):
        make_cuda_runner(tmp_path)
