"""AntreaAgentInfos of Nodes that come and go: no agent runs there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from antrea.errors import Unavailable
from lab.process import wait_for

if TYPE_CHECKING:
    from controller_process import ControllerProcess


NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "short-lived"}}


def test_an_object_comes_and_goes_with_its_node(controller: ControllerProcess) -> None:
    api = controller.lab.api

    def there() -> bool:
        try:
            return "short-lived" in api.kubectl("get", "aai", "short-lived", "-o", "name")
        except Unavailable:
            return False

    api.apply(json.dumps(NODE))
    wait_for("the object", there, seconds=60)
    api.kubectl("delete", "node", "short-lived")
    wait_for("its end", lambda: not there(), seconds=60)
