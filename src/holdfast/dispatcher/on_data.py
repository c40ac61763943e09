"""Calls about datasets, sinks and the outbox."""

from __future__ import annotations

from holdfast.dispatcher import admission, both_ways, wire, wire_data
from holdfast.dispatcher.hall import Asked, Hall
from holdfast.model.output import DatasetVersion
from holdfast.policy import refusals


async def datasets(hall: Hall, asked: Asked) -> wire_data.DatasetsAnswer:
    return wire_data.DatasetsAnswer(
        datasets=await hall.store.datasets(limit=asked.query.limit, after=asked.query.after)
    )


async def dataset_versions(hall: Hall, asked: Asked) -> wire_data.VersionsAnswer:
    query = asked.query
    found = await hall.store.dataset_versions(query.dataset, limit=query.limit, before=query.before)
    return wire_data.VersionsAnswer(versions=found)


async def dataset_version(hall: Hall, asked: Asked) -> DatasetVersion:
    query = asked.query
    found = await hall.store.dataset_version(query.dataset, query.version)
    if found is None:
        raise refusals.dataset_not_found(query.dataset, query.version)
    return found


async def dataset_rows(hall: Hall, asked: Asked) -> wire_data.RowsAnswer:
    query = asked.query
    found = await hall.store.dataset_rows(query.dataset, query.version, after=query.after, limit=query.limit)
    return wire_data.RowsAnswer(rows=[both_ways.row_out(one) for one in found])


async def sinks(hall: Hall, asked: Asked) -> wire_data.SinksAnswer:  # noqa: ARG001
    return wire_data.SinksAnswer(sinks=await hall.store.sinks())


async def declare_sink(hall: Hall, asked: Asked) -> wire.Done:
    await hall.store.declare_sink(admission.sink(asked.body))
    return wire.Done()


async def delete_sink(hall: Hall, asked: Asked) -> wire.DeletedAnswer:
    return wire.DeletedAnswer(deleted=await hall.store.delete_sink(asked.body.name))


async def outbox(hall: Hall, asked: Asked) -> wire_data.OutboxAnswer:
    query = asked.query
    rows = await hall.store.outbox(sink=query.sink, state=query.state, limit=query.limit, after=query.after)
    return wire_data.OutboxAnswer(rows=rows, after=rows[-1].id if rows else query.after)


async def requeue_outbox(hall: Hall, asked: Asked) -> wire.CountAnswer:
    return wire.CountAnswer(count=await hall.store.requeue_outbox(asked.body.ids))


async def purge_outbox(hall: Hall, asked: Asked) -> wire.CountAnswer:
    return wire.CountAnswer(count=await hall.store.purge_outbox(asked.body.ids))
