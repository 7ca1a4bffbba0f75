"""Tables by name in what OVS prints."""

from __future__ import annotations

from antrea.agent.api.trace_packet import named, named_trace

NAMES = {0: "PipelineRootClassifier", 3: "Classifier", 5: "Output"}


def test_table_names_stand_in_a_flow_for_numbers_that_are_tables() -> None:
    flow = "table=3, priority=200,nw_dst=5 actions=resubmit(,5),ct(table=0,zone=5),goto_table:9"
    assert named(flow, NAMES) == (
        "table=Classifier, priority=200,nw_dst=5 actions=resubmit(,Output),ct(table=PipelineRootClassifier,zone=5),goto_table:9"
    )


def test_table_names_follow_the_numbers_of_steps_in_a_trace() -> None:
    trace = (
        ' 0. ip, priority 200\n    goto_table:3\n 3. in_port=1, priority 190\n    resubmit(,5)\n     5. No match.\n'
        "            drop\n     -> A clone of the packet is forked to recirculate. The forked pipeline will be resumed at table 5.\n"
        "    thaw\n        Resuming from table 5\n 7. priority 0\n"
    )  # fmt: skip
    assert named_trace(trace, NAMES) == (
        " 0. PipelineRootClassifier: ip, priority 200\n    goto_table:Classifier\n 3. Classifier: in_port=1, priority 190\n"
        "    resubmit(,Output)\n     5. Output: No match.\n            drop\n"
        "     -> A clone of the packet is forked to recirculate. The forked pipeline will be resumed at table Output.\n"
        "    thaw\n        Resuming from table Output\n 7. priority 0\n"
    )
