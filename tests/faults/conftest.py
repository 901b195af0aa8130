"""``make check-faults``: how much is tried, and the table of what survived."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faults_kit import HEAD, SIZES, Attack, ForkServer, Plan, attack_of, row_of


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("faults")
    group.addoption("--full", action="store_const", dest="faults", const="full", default="brief")
    group.addoption("--long", action="store_const", dest="faults", const="long")
    group.addoption("--seed", type=int, default=0, help="of what is drawn by chance; -1 draws one")


def pytest_configure(config: pytest.Config) -> None:
    # A worker of pytest-xdist reads the command line again; it must not draw a seed of its own.
    sent: dict[str, int] = getattr(config, "workerinput", {})
    if "faults_seed" in sent:
        config.option.seed = sent["faults_seed"]
    elif config.getoption("seed", 0) == -1:
        config.option.seed = random.SystemRandom().randrange(10**6)


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist: before each worker is started
def pytest_configure_node(node: Any) -> None:
    node.workerinput["faults_seed"] = plan_of(node.config).seed


def plan_of(config: pytest.Config) -> Plan:
    # Where the whole suite is run, these options were not there when the command line was read.
    return Plan(config.getoption("seed", 0), config.getoption("faults", "brief"))


def pytest_report_header(config: pytest.Config) -> str:
    plan = plan_of(config)
    return f"faults: --seed {plan.seed}, {plan.size} (one of {', '.join(SIZES)})"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = []
    for report in (*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")):
        # The properties stand in the reports of a test's set-up and end as well.
        if report.when == "call":
            for name, tally in report.user_properties:
                if name == "faults":
                    lines.append(row_of(tally))
    if lines:
        terminalreporter.section(pytest_report_header(terminalreporter.config))
        terminalreporter.write_line(HEAD)
        for line in sorted(lines):
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    server = ForkServer()
    yield server
    server.close()


@pytest.fixture
def attack(
    fork_server: ForkServer, request: pytest.FixtureRequest, record_property: pytest.RecordProperty
) -> Attack:
    """Runs a class of cases; fails with those that did not survive."""
    plan = plan_of(request.config)
    return attack_of(fork_server, plan, request.node.nodeid, record_property)


@pytest.hookimpl(tryfirst=True)  # before the other tests' limit is put on these
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if plan_of(config).size != "brief":
        for item in items:
            if item.path.parent == Path(__file__).parent:
                item.add_marker(pytest.mark.timeout(2 * 3600))
