"""The page of units is that of the features, and names what each makes."""

from __future__ import annotations

from antrea.agent.feature_set import FEATURES as AGENT
from antrea.controller.compute.runtime import FEATURES as CONTROLLER
from antrea.features.registry.units_document import PAGE, document


def test_generated_units_page_is_current() -> None:
    assert PAGE.read_text() == document(), "run `make docs`"


def test_generated_units_page_has_a_row_for_every_unit() -> None:
    units = [unit for feature in AGENT for unit in feature.units]
    units += [unit for feature in CONTROLLER for unit in feature.units]
    page = document()
    rows = [line for line in page.splitlines() if line.startswith("|") and ".py)" in line]
    named = [unit for unit in units if f"[`{unit.entries.__name__}`]" in page]
    assert (len(rows) >= len(units), named) == (True, units)


def test_generated_units_page_says_where_rows_are_from_and_what_is_made_of_them() -> None:
    rows = [
        [cell.partition("](")[0].strip(" [`") for cell in line.strip("|").split("|")]
        for line in document().splitlines()
    ]
    assert ["SentPolicy", "networkpolicies", "report", "NetworkPolicy", "", "PolicyReport"] in rows
    # the annotation names an alias
    made = ["GroupNodes, GroupPorts, MembershipCandidate, ForeignMember", "Memberships, Membership"]
    assert ["", "", "memberships", "Grouping", *made] in rows
