"""Scan: the rows of a relation, with the columns that identify them."""

from jobs.plan.fragments import Dispatch, Input, input_ref
from jobs.plan.streams.builder import ANYWHERE, Builder, Draft, Stream
from jobs.sql import logical


def plan_scan(builder: Builder, plan: logical.Scan) -> Stream:
    source = builder.upstream(plan.relation)
    types = tuple(f.type for f in plan.fields)
    visible = tuple(range(len(types)))
    if source.output is None:
        key = tuple(c for c, _ in source.source_key)
        behind = [(c, kind) for c, kind in source.source_key if c not in plan.columns]
        columns, types = (*plan.columns, *(c for c, _ in behind)), (*types, *(kind for _, kind in behind))
        draft = Draft([Input(source.relation_id, None, columns, types, Dispatch.FORWARD)])
        return Stream(draft, input_ref(0), types, visible, tuple(columns.index(c) for c in key), ANYWHERE, source.append_only)
    out = source.output
    columns = (*plan.columns, *(c for c in out.key if c not in plan.columns))
    types = tuple(out.types[c] for c in columns)
    at = {c: i for i, c in reversed(list(enumerate(columns)))}
    draft = Draft([Input(source.relation_id, None, columns, types, Dispatch.FORWARD)], singleton=out.distribution == ())
    key, distribution = tuple(at[c] for c in out.key), tuple(at[c] for c in out.distribution)
    return Stream(draft, input_ref(0), types, visible, key, distribution, out.append_only)
