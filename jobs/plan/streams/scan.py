"""Scan: the rows of a relation, with the columns that identify them."""

from dataclasses import replace

from tussock.jobs.executors.number_copies import NumberCopies
from tussock.jobs.executors.row_digest import row_digest_of
from tussock.jobs.logical import nodes as logical
from tussock.jobs.plan.fragments import Dispatch, Input, input_ref
from tussock.jobs.plan.streams.builder import ANYWHERE, Builder, FragmentDraft, Stream


def plan_scan(builder: Builder, plan: logical.Scan) -> Stream:
    source = builder.upstream(plan.relation)
    types = tuple(f.type for f in plan.fields)
    visible = tuple(range(len(types)))
    if source.output is None:
        key = tuple(c for c, _ in source.source_key)
        behind = [(c, kind) for c, kind in source.source_key if c not in plan.columns]
        columns, types = (*plan.columns, *(c for c, _ in behind)), (*types, *(kind for _, kind in behind))
        draft = FragmentDraft([Input(source.relation_id, None, columns, types, Dispatch.FORWARD)])
        stream = Stream(
            draft, input_ref(0), types, visible, tuple(columns.index(c) for c in key), ANYWHERE, source.append_only
        )
        return stream if key else _add_digest_key(builder, stream)
    out = source.output
    columns = (*plan.columns, *(c for c in out.key if c not in plan.columns))
    types = tuple(out.types[c] for c in columns)
    at = {c: i for i, c in reversed(list(enumerate(columns)))}
    draft = FragmentDraft(
        [Input(source.relation_id, None, columns, types, Dispatch.FORWARD)], singleton=out.distribution == ()
    )
    key, distribution = tuple(at[c] for c in out.key), tuple(at[c] for c in out.distribution)
    return Stream(draft, input_ref(0), types, visible, key, distribution, out.append_only)


def _add_digest_key(builder: Builder, rows: Stream) -> Stream:
    """The rows of a source without a key, keyed by a digest of their values and the number of the copy."""
    node = row_digest_of(rows.types)
    digest = (len(rows.types), len(rows.types) + 1)
    digested = replace(rows, ref=builder.add_operator(rows.draft, node, (rows.ref,)), types=node.types)
    together = builder.add_exchange(digested, digest)
    numbered = NumberCopies((*node.types, "bigint"))
    ref = builder.add_operator(together.draft, numbered, (together.ref,))
    return replace(together, ref=ref, types=numbered.types, key=(*digest, len(node.types)))
