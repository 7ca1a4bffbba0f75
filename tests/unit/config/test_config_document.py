"""The generated pages say what the code says."""

import msgspec
import pytest

from antrea.config import document as configuration
from antrea.config.agent import AgentConfig
from antrea.config.controller import ControllerConfig
from antrea.config.load import known_paths
from antrea.features.framework.gate import GATES
from antrea.features.registry import document as feature_gates


def test_generated_configuration_page_is_current() -> None:
    assert configuration.PAGE.read_text() == configuration.document(), "run `make docs`"


def test_generated_feature_gates_page_is_current() -> None:
    assert feature_gates.PAGE.read_text() == feature_gates.document(), (
        "run python -m antrea.features.registry.document"
    )


def test_generated_names_of_gates_are_current() -> None:
    assert feature_gates.NAMES.read_text() == feature_gates.gate_names(), "run `make docs`"


@pytest.mark.parametrize("kind", [AgentConfig, ControllerConfig])
def test_generated_configuration_page_has_a_row_for_every_key(kind: type[msgspec.Struct]) -> None:
    page = configuration.document().split("## " + kind.__dict__["file"])[1].split("## ")[0]
    paths = list(known_paths(kind))
    leaves = [path for path in paths if not any(other.startswith(f"{path}.") for other in paths)]
    assert [leaf for leaf in leaves if f"| `{leaf}` |" not in page] == []


def test_generated_feature_gates_page_has_a_row_for_every_gate() -> None:
    page = feature_gates.document()
    assert [gate.name for gate in GATES if f"| `{gate.name}` |" not in page] == []


def test_generated_page_refuses_a_field_without_a_sentence() -> None:
    class Silent(msgspec.Struct):
        spoken: int = 1
        """One."""
        silent: int = 2

    with pytest.raises(LookupError, match="Silent lacks a sentence for silent"):
        configuration.meanings(Silent)
