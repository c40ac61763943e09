"""The schema of the PostgreSQL store as text, read back from the catalogs of a real server.

`python -m tests.stores.postgres_described` writes what the migrations make into postgres_schema.txt, where a reviewer
sees what a change to them means. A test compares the two.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from holdfast.stores.postgres import schema
from tests import postgres_server

DECLARED = Path(__file__).parent / "postgres_schema.txt"
COMMAND = "python -m tests.stores.postgres_described"

# Each gives lines of (kind, text). Constraints of kind n are the NOT NULLs, which only newer servers list there.
PARTS = (
    """
    select 'table ' || c.relname, format('%s %s%s%s%s%s', a.attname, format_type(a.atttypid, a.atttypmod),
        case when l.collname <> 'default' then ' collate ' || quote_ident(l.collname) end,
        case when a.attnotnull then ' not null' end,
        ' default ' || pg_get_expr(d.adbin, d.adrelid),
        case a.attidentity when 'a' then ' always identity' when 'd' then ' identity' end)
    from pg_class c
    join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
    left join pg_collation l on l.oid = a.attcollation
    where c.relnamespace = $1::regnamespace and c.relkind in ('r', 'p')
    order by c.relname, a.attnum
    """,
    """
    select 'table ' || c.relname, 'with ' || array_to_string(c.reloptions, ', ')
    from pg_class c where c.relnamespace = $1::regnamespace and c.relkind = 'r' and c.reloptions is not null
    order by c.relname
    """,
    """
    select 'constraint', format('%s on %s: %s', o.conname, r.relname, pg_get_constraintdef(o.oid))
    from pg_constraint o join pg_class r on r.oid = o.conrelid
    where o.connamespace = $1::regnamespace and o.contype <> 'n'
    order by o.conname
    """,
    """
    select 'index', pg_get_indexdef(i.indexrelid) from pg_index i join pg_class c on c.oid = i.indexrelid
    where c.relnamespace = $1::regnamespace order by c.relname
    """,
    """
    select 'sequence', format('%s %s', c.relname, format_type(s.seqtypid, null))
    from pg_sequence s join pg_class c on c.oid = s.seqrelid
    where c.relnamespace = $1::regnamespace order by c.relname
    """,
    """
    select 'function', format('%s(%s) returns %s %s %s %s%s', p.proname, pg_get_function_arguments(p.oid),
        pg_get_function_result(p.oid), l.lanname,
        case p.provolatile when 'i' then 'immutable' when 's' then 'stable' else 'volatile' end,
        case when p.prosecdef then 'security definer' else 'security invoker' end,
        ' set ' || array_to_string(p.proconfig, ' set '))
    from pg_proc p join pg_language l on l.oid = p.prolang
    where p.pronamespace = $1::regnamespace order by p.proname, p.oid
    """,
    """
    select 'trigger', pg_get_triggerdef(t.oid) from pg_trigger t join pg_class c on c.oid = t.tgrelid
    where c.relnamespace = $1::regnamespace and not t.tgisinternal order by t.tgname
    """,
    """
    select 'type', t.typname from pg_type t left join pg_class c on c.oid = t.typrelid
    where t.typnamespace = $1::regnamespace and t.typelem = 0 and coalesce(c.relkind, 'c') = 'c' order by t.typname
    """,
)


async def described(conn: Any, name: str) -> str:
    """What is in this schema, as it would read if that were named holdfast."""
    lines: list[str] = []
    for part in PARTS:
        last = ""
        for kind, text in await conn.fetch(part, name):
            if kind.startswith("table ") and kind != last:
                lines += ["", kind]
            lines.append(f"    {text}" if kind.startswith("table ") else f"{kind} {text}")
            last = kind
        lines.append("")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).replace(name, "holdfast").strip() + "\n"


async def migrated(conn: Any) -> str:
    """The same for a schema that the migrations have just made."""
    name = postgres_server.fresh_schema()
    await conn.execute(schema.whole_script(schema.steps(), f'"{name}"'))
    return await described(conn, name)


if __name__ == "__main__":
    DECLARED.write_text(postgres_server.run_apart(migrated))
