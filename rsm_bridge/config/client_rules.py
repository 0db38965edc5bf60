"""`tls.clients`: which client certificate may do what, for which clusters."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rsm_bridge.config.section import Section

#: In `clusters`: whatever cluster the client says it is of.
EVERY_CLUSTER = "*"


class ClientRule(Section):
    """What some clients may do, told by the names in their certificates. All rules that match add up.

    A certificate that no rule names may do nothing.
    """

    names: tuple[Annotated[str, Field(pattern=r"^(CN|DNS|URI)=.+$")], ...] = Field(
        min_length=1,
        description="Names of certificates: `CN=broker-1` is the subject's common name, `DNS=broker-1.example` and "
        "`URI=spiffe://prod/kafka` are subject alternative names. One of them must be in the certificate, character "
        "by character: there are no wildcards, and `DNS=*.example` is the name `*.example`.",
    )
    clusters: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        min_length=1,
        description="Clusters whose segments they are, by the brokers' `cluster.name`. `*`: all.",
    )
    may: Literal["read", "write"] = Field(
        description="`read`: fetch segments and indexes. `write`: copy and delete them as well; brokers need it."
    )
