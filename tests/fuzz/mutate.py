"""Files made hostile: values of other kinds, huge numbers, names that lead elsewhere, bytes changed, archives that lie."""

from __future__ import annotations

import copy
import io
import json
import random
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

AWAY = "../../outside/secret"
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**30, -(2**63), 1e308, -1e308, 5e-324, 0.5, float("nan"),
    float("inf"), "", " ", "0", "-1", "1/0", "1/3", "1e99999", "1e9999", "nan", "inf", "9" * 5000, "x" * 70_000, "\0", "\u202e",
    "é" * 300, AWAY, f"{AWAY}.parquet", "/etc/passwd", "file:///etc/passwd", "*", "**", "counts/*", "%00", "';--", '"', "a\nb",
    "=1+1", "<script>", "all", "block", "county", "sex", "dp", "none", "ols", "exact", "random-rounding", [], {}, [[]], [None],
    ["a"] * 3000, {"a": []}, {"": ""}, [{}] * 50, ["all", "all"], {"law": "exact"},
]  # fmt: skip
NUMBERS = [
    "0",
    "-1",
    "99999999999999999999",
    "1e400",
    "nan",
    "1e-400",
    "9" * 5000,
    "0.5",
    "1_0",
    "0x7fffffffffffffff",
    "inf",
]


def json_mutant(text: str, rng: random.Random) -> bytes:
    """A JSON document with some of its parts replaced, lost, doubled or exchanged; or bytes changed, or nested deeply."""
    if rng.random() < 0.15:
        return bytes_mutant(text.encode(), rng)
    if rng.random() < 0.02:
        return rng.choice(
            [b"[" * 100_000, b'{"a":' * 100_000, b"1" * 10_000, b"\xff\xfe", b"", b'"', b"{}", b"[]", b"NaN"]
        )
    held = json.loads(text)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        _change(held, rng)
    return json.dumps(held).encode("utf-8", "surrogatepass")


def _change(held: Any, rng: random.Random) -> None:
    spots = list(_spots(held))
    if not spots:
        return
    holder, key = rng.choice(spots)
    act = rng.random()
    if act < 0.5:
        holder[key] = copy.deepcopy(rng.choice(VALUES))
    elif act < 0.6:
        del holder[key]
    elif act < 0.75:
        other, there = rng.choice(spots)
        holder[key] = copy.deepcopy(other[there])
    elif act < 0.85 and isinstance(holder, dict):
        holder[rng.choice([AWAY, "", "x", "part-0", str(key) + "x", "where", "file", "files"])] = holder.pop(
            key
        )
    elif act < 0.95 and isinstance(holder, list):
        holder.extend([copy.deepcopy(holder[key])] * rng.choice([1, 2, 2000]))
    else:
        holder[key] = _near(holder[key], rng)


def _near(value: Any, rng: random.Random) -> Any:
    """A value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return rng.choice([value + 1, -value, value * 10**9, value / 3, 2**62, 0])
    if isinstance(value, str):
        return rng.choice(
            [value[:-1], value + value, value.upper(), value + "/..", value + "\0", rng.choice(NUMBERS)]
        )
    return [value]


def _spots(part: Any) -> Iterator[tuple[Any, Any]]:
    items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, held in items:
        yield part, key
        yield from _spots(held)


def bytes_mutant(held: bytes, rng: random.Random) -> bytes:
    """Bytes changed, cut, put in or doubled."""
    out = bytearray(held)
    for _ in range(rng.choice([1, 1, 2, 5, 30])):
        at, act = rng.randrange(len(out) + 1), rng.randrange(5)
        if act == 0 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif act == 1 and at < len(out):
            out[at] = rng.choice([0, 1, 127, 128, 255])
        elif act == 2:
            del out[at : at + rng.choice([1, 4, 100])]
        elif act == 3:
            out[at:at] = rng.choice(
                [b"\0", b"\xff" * 4, b"\x7f\xff\xff\xff", rng.randbytes(8), bytes(out[:50])]
            )
        elif rng.random() < 0.3:
            del out[at:]
    return bytes(out)


def cell_mutant(held: bytes, rng: random.Random) -> bytes:
    """A table in CSV with fields exchanged, lost or doubled."""
    lines = held.decode().split("\n")
    mark = "|" if "|" in lines[0] else ","
    for _ in range(rng.choice([1, 1, 2, 5])):
        at = rng.randrange(len(lines))
        fields = lines[at].split(mark)
        new = rng.choice([str(rng.choice(VALUES))[:70_000], rng.choice(NUMBERS), rng.choice(fields)])
        fields[rng.randrange(len(fields))] = new
        lines[at] = mark.join(fields)
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def toml_mutant(text: str, rng: random.Random) -> bytes:
    """A spec with values, keys and lines exchanged, lost or doubled; or bytes changed."""
    if rng.random() < 0.1:
        return bytes_mutant(text.encode(), rng)
    if rng.random() < 0.02:
        return rng.choice(
            [
                b"a=" + b"[" * 100_000,
                b"a." * 20_000 + b"b=1",
                b"a=" + b"9" * 50_000,
                b"\xff",
                b"",
                b"format=2",
            ]
        )
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        text = _changed_toml(text, rng)
    return text.encode("utf-8", "surrogatepass")


def _changed_toml(text: str, rng: random.Random) -> str:
    act = rng.random()
    if act < 0.55 and (found := list(re.finditer(r'"[^"\n]*"|(?<==)\s*\[[^\]\n]*\]|\b\d[\d./e-]*\b', text))):
        at = rng.choice(found)
        own = rng.choice(found).group()
        new = rng.choice(
            [own, _toml_value(rng), _toml_value(rng), rng.choice(NUMBERS), f'"{rng.choice(NUMBERS)}"']
        )
        return text[: at.start()] + new + text[at.end() :]
    if act < 0.7 and (found := list(re.finditer(r"\b([a-z_]+)(?= = )", text))):
        at = rng.choice(found)
        return (
            text[: at.start()] + rng.choice([rng.choice(found).group(), "x", '""', "a.b"]) + text[at.end() :]
        )
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    if act < 0.8:
        del lines[at]
    elif act < 0.9:
        lines[at:at] = [rng.choice(lines)] * rng.choice([1, 2, 300])
    else:
        lines[at] = (
            f"{rng.choice(['name', 'values', 'where', 'lower', 'rho', 'column'])} = {_toml_value(rng)}"
        )
    return "\n".join(lines)


def _toml_value(rng: random.Random) -> str:
    value = rng.choice(VALUES)
    if value is None or isinstance(value, dict):
        return rng.choice(["{}", '{ a = "b" }', "{ all = 1 }", "1979-05-27", '{ block = "1/2" }'])
    if isinstance(value, float):
        return {"NaN": "nan", "Infinity": "inf"}.get(json.dumps(value), repr(value))
    return json.dumps(value).replace("null", '""').replace("{}", "{}")


def zip_mutant(held: bytes, rng: random.Random) -> bytes:
    """An archive with bytes, members or their texts changed."""
    if rng.random() < 0.3:
        return bytes_mutant(held, rng)
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(held)) as given, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        names = given.namelist()
        chosen, act = rng.choice(names), rng.random()
        for name in names:
            own = given.read(name)
            if name == chosen:
                if act < 0.1:
                    continue
                own = _member(own, rng)
            made.writestr(AWAY if name == chosen and act > 0.97 else name, own)
    return out.getvalue()


STRAY = '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'
ENTITY = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi")
)
OUTER = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'


def _member(own: bytes, rng: random.Random) -> bytes:
    if not own.lstrip().startswith(b"<"):
        return npy_mutant(own, rng) if own.startswith(b"\x93NUMPY") else bytes_mutant(own, rng)
    text = own.decode("utf-8", "replace")
    act = rng.random()
    if act < 0.2 and (found := list(re.finditer(r">[^<>]+<|\"[^\"]*\"", text))):
        at = rng.choice(found)
        inner = (
            rng.choice([str(v)[:70_000] for v in VALUES]).replace("<", "").replace('"', "").replace("&", "")
        )
        return (text[: at.start() + 1] + inner + text[at.end() - 1 :]).encode("utf-8", "replace")
    if act < 0.3:
        return text.replace("</sheetData>", STRAY + "</sheetData>").encode()
    if act < 0.4:
        return (
            re.sub(r"(<\?xml[^>]*\?>)?", lambda m: m.group() + ENTITY + "]>", text, count=1)
            .replace("><", ">&i;<", 3)
            .encode()
        )
    if act < 0.5:
        return (
            re.sub(r"(<\?xml[^>]*\?>)?", lambda m: m.group() + OUTER, text, count=1)
            .replace("><", ">&a;<", 3)
            .encode()
        )
    if act < 0.6:
        return text.replace("<row", "<row" * rng.choice([1, 2]) + ' spans="1:99999999"', 1).encode()
    if act < 0.7:
        return re.sub(r'ref="[^"]*"', 'ref="A1:XFD1048576"', text).encode()
    if act < 0.8:
        return re.sub(
            r'r="[A-Z]+(\d+)"', lambda m: f'r="{rng.choice(["XFD", "ZZZZZ", "A", ""])}{m[1]}"', text, count=1
        ).encode()
    if act < 0.85:
        return (text.replace("</sheetData>", "<row><c><v>1</v></c></row>" * 3000 + "</sheetData>")).encode()
    if act < 0.88:
        return ("<a>" * 50_000 + "</a>" * 50_000).encode()
    return bytes_mutant(own, rng)


def npy_mutant(own: bytes, rng: random.Random) -> bytes:
    """An array whose header says another shape or kind than its bytes have, or whose bytes are changed."""
    shape = rng.choice(
        ["(99999999999,)", "(2, 10000000000)", "(-1,)", "()", "(0,)", "(2, 4, 1)", "(3000000000,)"]
    )
    kind = rng.choice(["'|O'", "'<U999999999'", "'<f8'", "'<i2'", "[('a', '<i8')]", "'|V9'", "'<M8[ns]'"])
    act = rng.random()
    if act < 0.4:
        return _headed(own, re.sub(rb"'shape': \([^)]*\)", f"'shape': {shape}".encode(), own))
    if act < 0.8:
        return _headed(own, re.sub(rb"'descr': '[^']*'", f"'descr': {kind}".encode(), own))
    return bytes_mutant(own, rng)


def _headed(own: bytes, new: bytes) -> bytes:
    """With the length of the header put right."""
    length = int.from_bytes(own[8:10], "little") + len(new) - len(own)
    return new[:8] + (length % 65536).to_bytes(2, "little") + new[10:]


def parquet_mutant(held: bytes, rng: random.Random, rows: int = 0) -> bytes:
    """A table with columns renamed, lost, of other kinds, or rows doubled or lost; or bytes changed; or of so many rows."""
    if rng.random() < 0.3:
        return bytes_mutant(held, rng)
    table = pq.read_table(io.BytesIO(held))
    out = io.BytesIO()
    try:
        for _ in range(rng.choice([1, 1, 2])):
            table = _changed_table(table, rng, rows)
        pq.write_table(table, out, compression=rng.choice(["zstd", "snappy", "none"]))
    except (pa.ArrowException, MemoryError):  # such a table cannot be written
        return bytes_mutant(held, rng)
    return out.getvalue()


def _changed_table(table: pa.Table, rng: random.Random, rows: int) -> pa.Table:
    act, names = rng.random(), table.column_names
    at = rng.randrange(len(names)) if names else 0
    if not names:
        return pa.table({"x": [1]})
    if act < 0.1:
        return table.remove_column(at)
    if act < 0.2:
        new = rng.choice(
            ["", "x", names[-1], AWAY, "a" * 5000, 'q"q', names[at].upper(), "trueup_row", "position"]
        )
        return table.rename_columns([new if k == at else n for k, n in enumerate(names)])
    if act < 0.3:
        return table.slice(rng.randrange(table.num_rows + 1), rng.choice([0, 1, 10**6]))
    if act < 0.4:
        return pa.concat_tables([table] * rng.choice([2, 3, 100]))
    if act < 0.45:
        return table.take(pa.array(rng.sample(range(table.num_rows), table.num_rows), pa.int64()))
    if act < 0.46 and rows and table.num_rows:
        return table.slice(0, 1).take(pa.array([0] * rows))
    return table.set_column(at, names[at], _column(table.column(at).combine_chunks(), rng))


def _column(own: pa.Array, rng: random.Random) -> pa.Array:
    n = len(own)
    changed = own.to_pylist()
    if n and rng.random() < 0.4:
        changed[rng.randrange(n)] = _other(changed[0], rng)
        try:
            return pa.array(changed, own.type)
        except (pa.ArrowException, TypeError, OverflowError, ValueError):
            pass
    makers = [
        lambda: pa.nulls(n),
        lambda: pa.array([None] * n, own.type),
        lambda: pa.array([float("nan")] * n),
        lambda: pa.array([1e300] * n),
        lambda: pa.array([2**63 - 1] * n),
        lambda: pa.array([2**64 - 1] * n, pa.uint64()),
        lambda: pa.array(["x"] * n),
        lambda: pa.array(["\0"] * n),
        lambda: pa.array([b"\xff\xfe"] * n),
        lambda: pa.array([True] * n),
        lambda: pa.array([[1, 2, 3]] * n),
        lambda: pa.array([[]] * n, pa.list_(pa.int64())),
        lambda: pa.array([{"a": 1}] * n),
        lambda: pa.array([0] * n, pa.timestamp("ns")),
        lambda: pa.array(["x" * 100_000] * n),
        lambda: pa.array([[7] * 10_000] * n),
        lambda: pa.array(list(range(n))),
    ]
    return rng.choice(makers)()


def _other(value: Any, rng: random.Random) -> Any:
    if isinstance(value, list):
        return rng.choice(
            [[], value * 2, value[:-1], [None] * len(value), [2**40] * len(value), [-1] * len(value), None]
        )
    return rng.choice([None, -1, 2**31, 2**62, 0, "", "x", AWAY, 1.5, float("nan"), "\0", "x" * 70_000])


def signed(folder: Path) -> None:
    """Write into a manifest the digests that the files have now, as whoever made the bundle can."""
    import hashlib

    from trueup.io.bundle.manifest import measured_file, seal_of

    path = folder / "public" / "manifest.json"
    manifest = json.loads(path.read_text())
    files = {
        name: hashlib.sha256((folder / "public" / name).read_bytes()).hexdigest()
        for name in manifest["files"]
    }
    manifest["files"] = files
    if "parts" in manifest and manifest["guarantee"]["kind"] != "none":
        manifest["parts"] = {name: files[measured_file(name)] for name in manifest["parts"]}
        sealed = seal_of(manifest["parts"])
        manifest |= {"seal": sealed, "measurements": sealed}
    manifest["spec"] = files["spec.toml"]
    path.write_text(json.dumps(manifest))
