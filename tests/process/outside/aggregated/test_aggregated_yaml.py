"""A large answer in YAML takes long to write: others have their turn meanwhile."""

from __future__ import annotations

import asyncio
import json

from antrea.outside.apiserver.negotiation import JSON, YAML, written


async def test_a_large_answer_in_yaml_does_not_hold_the_loop() -> None:
    text = json.dumps({"items": [{"metadata": {"name": f"a{n}"}} for n in range(5000)]}).encode()
    assert await written(text, JSON) is text
    writing, turns = asyncio.ensure_future(written(text, YAML)), 0
    while not writing.done():
        await asyncio.sleep(0)
        turns += 1
    assert (await writing).count(b"name:") == 5000
    # one if it is written in the loop
    assert turns > 2
