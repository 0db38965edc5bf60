"""Deletes of unknown segment ids per second, beside a server that answers them without doing anything.

Bridge, empty server and client are processes of their own; the store is a folder.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.clients.process import Client, run_together
from benchmarks.meters import median, tree_cpu_s
from benchmarks.results import Case, Cases
from benchmarks.run import Plan, say
from tierberg.stack.ports import LOOPBACK, free_ports
from tierberg.stack.servers.bridge import Bridge

#: As several threads of several brokers would.
_IN_FLIGHT = 16


@dataclass(frozen=True, slots=True)
class _Deletes:
    """One run. `server_us`: CPU of the server per call."""

    per_s: float
    p50_ms: float
    p99_ms: float
    server_us: float
    client_us: float


@dataclass(frozen=True, slots=True)
class _Server:
    name: str
    target: str
    pid: int

    def delete(self, calls: int, in_flight: int) -> _Deletes:
        """One client's run."""
        settings = {"target": self.target, "calls": calls, "in_flight": in_flight}
        before = tree_cpu_s(self.pid)
        (figures,), _ = run_together("deletes", [settings])
        return _Deletes(
            per_s=calls / figures["wall_s"],
            p50_ms=figures["p50_ms"],
            p99_ms=figures["p99_ms"],
            server_us=(tree_cpu_s(self.pid) - before) / calls * 1e6,
            client_us=figures["cpu_s"] / calls * 1e6,
        )


def measure(plan: Plan) -> Cases:
    """The case of delete_unknown_rate; what it is with one call in flight stands in the extra figures."""
    calls, rounds = (2_000, 1) if plan.quick else (10_000, 5)
    target = f"{LOOPBACK}:{free_ports(1)[0]}"
    bridge = Bridge(plan.folder / "bridge")
    bridge.start()
    try:
        with Client("empty_bridge", {"target": target}) as empty:
            empty.wait_ready()
            servers = (_Server("bridge", bridge.target, bridge.process.pid), _Server("empty", target, empty.pid))
            for server in servers:
                server.delete(calls // 5, _IN_FLIGHT)  # not counted: it loads code
            alone = {server.name: server.delete(calls // 5, 1) for server in servers}
            found: dict[str, list[_Deletes]] = {server.name: [] for server in servers}
            for _ in range(rounds):
                for server in servers:
                    found[server.name].append(server.delete(calls, _IN_FLIGHT))
    finally:
        bridge.stop()
    say(f"  one in flight: {alone}, {_IN_FLIGHT}: {found}")
    return {"delete_unknown_rate": [_case(found["bridge"], found["empty"], alone)]}


def _case(ours: list[_Deletes], empty: list[_Deletes], alone: dict[str, _Deletes]) -> Case:
    rates = [run.per_s for run in ours]
    extra = {
        "p50_ms": median(run.p50_ms for run in ours),
        "p99_ms": median(run.p99_ms for run in ours),
        "bridge_cpu_us": median(run.server_us for run in ours),
        "floor_cpu_us": median(run.server_us for run in empty),
        "client_cpu_us": median(run.client_us for run in ours),
        "one_in_flight_per_s": alone["bridge"].per_s,
        "floor_one_in_flight_per_s": alone["empty"].per_s,
    }
    return Case(f"{_IN_FLIGHT} in flight, folder", median(rates), median(run.per_s for run in empty), rates, extra)
