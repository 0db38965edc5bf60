"""Who may do what: the names in a client's certificate against the rules of `tls.clients`.

A request names its cluster itself, and objects lie under topic ids. So two things are asked of a caller whose rule is
for some clusters only: that the request's cluster is one of them, and that so is what the store says. For a read that
is the cluster in the segment's own index; for a copy or a delete, before which there may be none, the cluster whose
topic it is (storage/segments/topic_owners.py). Without rules whoever has connected may do everything: any certificate
of the authority, or, without `tls.client_ca_file`, anybody who reaches the address.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from rsm_bridge.config.client_rules import EVERY_CLUSTER, ClientRule
from rsm_bridge.errors import BridgeError

Action = Literal["read", "write"]
_KINDS = (("CN", "x509_common_name"), ("DNS", "peer_dns"), ("URI", "peer_uri"))
_SHOWN_MAX, _NAME_CHARS_MAX = 4, 200


class IdentifiedCall(Protocol):
    """A call that is being served, as gRPC has it."""

    def peer(self) -> str:
        """`ipv4:address:port`, `ipv6:[address]:port` or `unix:…`."""
        ...

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """Properties of the connection; of the client's certificate only where one was asked for and checked."""
        ...


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, and for which clusters it may read and write.

    Attributes:
        name: for people and logs: the certificate's first name, else the address.
        names: of its certificate, as rules write them; empty without one.
    """

    name: str
    names: tuple[str, ...]
    reads: frozenset[str]
    writes: frozenset[str]

    def clusters(self, action: Action) -> frozenset[str] | None:
        """Those for which it may do this; None: all."""
        found = self.writes if action == "write" else self.reads
        return None if EVERY_CLUSTER in found else found

    def may(self, action: Action) -> bool:
        """Whether there is any cluster for which it may do this."""
        return bool(self.writes if action == "write" else self.reads)

    def refused(self, action: Action, cluster: str) -> BridgeError:
        """The error for what it may not do, for the caller and the log."""
        shown = ", ".join(name[:_NAME_CHARS_MAX] for name in self.names[:_SHOWN_MAX]) or "no name that rules can have"
        deed = "copy or delete" if action == "write" else "read"
        return BridgeError(
            "not_allowed",
            f"the client's certificate ({shown}) may not {deed} segments of cluster {cluster[:_NAME_CHARS_MAX]!r}: "
            "tls.clients of the bridge says what it may",
        )


def names_of(properties: Mapping[str, Iterable[bytes]]) -> tuple[str, ...]:
    """The names in a certificate, as rules write them: `CN=…` first, then `DNS=…`, `URI=…`."""
    return tuple(
        f"{kind}={value.decode('utf-8', 'replace')}" for kind, name in _KINDS for value in properties.get(name, ())
    )


def caller(rules: Sequence[ClientRule] | None, names: tuple[str, ...], address: str) -> Caller:
    """What the rules let a client with these names do.

    Args:
        rules: of the settings; None: there are none, and nothing is refused.
        names: of its certificate.
        address: of its connection.
    """
    shown = names[0][:_NAME_CHARS_MAX] if names else address
    if rules is None:
        every = frozenset((EVERY_CLUSTER,))
        return Caller(shown, names, every, every)
    mine = [rule for rule in rules if not set(rule.names).isdisjoint(names)]
    reads = frozenset(cluster for rule in mine for cluster in rule.clusters)
    writes = frozenset(cluster for rule in mine if rule.may == "write" for cluster in rule.clusters)
    return Caller(shown, names, reads, writes)


def caller_of(rules: Sequence[ClientRule] | None, call: IdentifiedCall) -> Caller:
    """The caller of a call."""
    return caller(rules, names_of(call.auth_context()), call.peer())
