"""Writer of tables as SDMX-CSV 2.0, with a structure message in SDMX-ML 3.0.

Each table is a dataflow with a data structure of its own, whose codes of places are the keys of its level. Dimensions are
the place and the attributes; the measure is the count; attributes of each observation are its status (`E` estimated, `A` for
an invariant), its confidentiality (`F`, free for publication), and, where they are known, noisy value and margin of error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree as Xml

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.files.writing import write_csv
from trueup.io.bundle.manifest import slug
from trueup.io.export.content import Exported, ExportedTable

VERSION = "1.0.0"
_SPACE = "http://www.sdmx.org/resources/sdmxml/schemas/v3_0/"
_MESSAGE, _STRUCTURE, _COMMON = (f"{{{_SPACE}{part}}}" for part in ("message", "structure", "common"))
_URN = "urn:sdmx:org.sdmx.infomodel."
_RESERVED = {"REF_AREA", "OBS_VALUE", "OBS_STATUS", "CONF_STATUS", "STRUCTURE", "STRUCTURE_ID", "ACTION"}
_STATUS = {"A": "Normal value", "E": "Estimated value"}
_CONFIDENTIALITY = {"F": "Free (free for publication)"}


@dataclass(frozen=True)
class StructureComponent:
    """A dimension or attribute in SDMX, with its identifier, name and codes of labels."""

    id: str
    name: str
    codes: dict[str, str] | None = None


def write_sdmx_folder(folder: Path, exported: Exported, *, agency: str) -> None:
    """Write an SDMX-CSV file for each table, and `structure.xml` with the dataflows and data structures."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_\-]*(\.[A-Za-z][A-Za-z0-9_\-]*)*", agency):
        raise SpecError(
            f"'{agency}' is not the identifier of an SDMX agency",
            needed="letters, digits and dots, such as XX or ABC.STATS",
        )
    if wide := next((table for table in exported.tables if table.wide), None):
        raise SpecError(
            f"the table '{wide.margin}' is requested in wide form",
            needed="the long form, because SDMX has no other",
            remedy="leave out --wide",
        )
    flows = [_Flow.of(table, agency) for table in exported.tables]
    for flow in flows:
        write_csv(folder / f"{slug(flow.table.margin)}.csv", flow.columns())
    tree = Xml.ElementTree(_message(flows, exported, agency))
    Xml.indent(tree)
    tree.write(folder / "structure.xml", encoding="utf-8", xml_declaration=True)


@dataclass(frozen=True)
class _Flow:
    """A table described as an SDMX dataflow, with identifier, agency, dimensions and attributes."""

    id: str
    agency: str
    table: ExportedTable
    dimensions: tuple[StructureComponent, ...]
    attributes: tuple[StructureComponent, ...]

    @classmethod
    def of(cls, table: ExportedTable, agency: str) -> _Flow:
        tree, margin = table.cells.tree, table.margin
        places = tree.labels(margin.level)
        names = tree.names[tree.level(margin.level)] if tree.names else None
        readable = places if names is None else [str(name) for name in names]
        area = StructureComponent("REF_AREA", margin.level, dict(zip(codes(places), readable)))
        kept = table.cells.kept(margin)
        attributes = (
            StructureComponent(identifier(r.name), r.name, dict(zip(codes(r.values), r.values))) for r in kept
        )
        _, *others = table.figures
        more = (StructureComponent(identifier(name), name) for name in others)
        status = StructureComponent("OBS_STATUS", "Observation status", _STATUS)
        free = StructureComponent("CONF_STATUS", "Confidentiality status", _CONFIDENTIALITY)
        return cls(identifier(slug(margin)), agency, table, (area, *attributes), (status, free, *more))

    def columns(self) -> dict[str, NDArray]:
        """Return the columns of the table's SDMX-CSV file by heading."""
        size, shape = (
            self.table.cells.size(self.table.margin),
            self.table.cells.margin_shape(self.table.margin),
        )
        at = np.indices(shape).reshape(len(shape), -1)
        dims = {c.id: np.array(list(c.codes or ()))[i] for c, i in zip(self.dimensions, at)}
        main, *others = self.table.figures.values()
        status = np.where(self.table.exact, "A", "E")
        return {
            "STRUCTURE": np.full(size, "dataflow"),
            "STRUCTURE_ID": np.full(size, f"{self.agency}:DF_{self.id}({VERSION})"),
            "ACTION": np.full(size, "I"),
            **dims,
            "OBS_VALUE": main,
            "OBS_STATUS": status,
            "CONF_STATUS": np.full(size, "F"),
            **dict(zip((c.id for c in self.attributes[2:]), others)),
        }


def codes(labels: Sequence[str]) -> list[str]:
    """Return labels as SDMX codes, in which a hexadecimal number replaces each character that is not allowed.

    The slash between the parts of a key becomes `-`, unless some key contains `-`.

    Examples
    --------
    >>> codes(["01/001", "02/001"]), codes(["65+", "18-64"])
    (['01-001', '02-001'], ['65_x2b', '18-64'])
    """
    texts = [str(label) for label in labels]
    if not any("-" in text for text in texts):
        texts = [text.replace("/", "-") for text in texts]
    found = [re.sub(r"[^A-Za-z0-9_@$\-]", lambda c: f"_x{ord(c[0]):x}", text) or "_" for text in texts]
    if len(set(found)) < len(found):
        twice = next(label for label, code in zip(labels, found) if found.count(code) > 1)
        raise SpecError(
            f"the label '{twice}' and another one have the same SDMX code",
            remedy="export to csv, which keeps the labels",
        )
    return found


def identifier(name: str) -> str:
    """Return a name as an SDMX identifier: a letter, followed by letters, digits or `_`.

    Examples
    --------
    >>> identifier("age group"), identifier("2nd"), identifier("obs value")
    ('AGE_GROUP', 'X_2ND', 'X_OBS_VALUE')
    """
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name).upper()
    return plain if plain[:1].isalpha() and plain not in _RESERVED else f"X_{plain}"


def _message(flows: list[_Flow], exported: Exported, agency: str) -> Xml.Element:
    for prefix, space in (("mes", _MESSAGE), ("str", _STRUCTURE), ("com", _COMMON)):
        Xml.register_namespace(prefix, space[1:-1])
    root = Xml.Element(f"{_MESSAGE}Structure")
    header = Xml.SubElement(root, f"{_MESSAGE}Header")
    now = datetime.now(UTC)
    for tag, text in (
        ("ID", f"TRUEUP{now:%Y%m%d%H%M%S}"), ("Test", "false"), ("Prepared", now.isoformat(timespec="seconds"))
    ):  # fmt: skip
        Xml.SubElement(header, f"{_MESSAGE}{tag}").text = text
    Xml.SubElement(header, f"{_MESSAGE}Sender", id=agency)
    parts = Xml.SubElement(root, f"{_MESSAGE}Structures")
    lists, schemes, dataflows, structures = (
        Xml.SubElement(parts, f"{_STRUCTURE}{name}")
        for name in ("Codelists", "ConceptSchemes", "Dataflows", "DataStructures")
    )
    for flow in flows:
        _describe(flow, exported.title, lists, schemes, dataflows, structures)
    return root


def _describe(
    flow: _Flow,
    title: str,
    lists: Xml.Element,
    schemes: Xml.Element,
    dataflows: Xml.Element,
    structures: Xml.Element,
) -> None:
    """Add the description of one table to the structure message of SDMX."""
    name = f"{title}: {flow.table.margin}"
    components = (*flow.dimensions, *flow.attributes)
    for component in components:
        if component.codes is not None:
            held = _item(lists, "Codelist", f"CL_{flow.id}_{component.id}", component.name, flow.agency)
            for code, label in component.codes.items():
                _item(held, "Code", code, label)
    measure = StructureComponent("OBS_VALUE", next(iter(flow.table.figures)))
    scheme = _item(schemes, "ConceptScheme", f"CS_{flow.id}", name, flow.agency)
    for component in (*components, measure):
        _item(scheme, "Concept", component.id, component.name)
    own = _item(dataflows, "Dataflow", f"DF_{flow.id}", name, flow.agency)
    structure = f"{_URN}datastructure.DataStructure={flow.agency}:DSD_{flow.id}({VERSION})"
    Xml.SubElement(own, f"{_STRUCTURE}Structure").text = structure
    inside = Xml.SubElement(
        _item(structures, "DataStructure", f"DSD_{flow.id}", name, flow.agency),
        f"{_STRUCTURE}DataStructureComponents",
    )
    dimensions = Xml.SubElement(inside, f"{_STRUCTURE}DimensionList", id="DimensionDescriptor")
    for position, component in enumerate(flow.dimensions, 1):
        _component(dimensions, "Dimension", component, flow, position=str(position))
    attributes = Xml.SubElement(inside, f"{_STRUCTURE}AttributeList", id="AttributeDescriptor")
    for component in flow.attributes:
        usage = "optional" if component.codes is None else "mandatory"
        relation = Xml.SubElement(
            _component(attributes, "Attribute", component, flow, usage=usage),
            f"{_STRUCTURE}AttributeRelationship",
        )
        Xml.SubElement(relation, f"{_STRUCTURE}Observation")
    measures = Xml.SubElement(inside, f"{_STRUCTURE}MeasureList", id="MeasureDescriptor")
    _component(measures, "Measure", measure, flow, usage="mandatory")


def _item(parent: Xml.Element, tag: str, id: str, name: str, agency: str = "") -> Xml.Element:
    more = {"agencyID": agency, "version": VERSION} if agency else {}
    found = Xml.SubElement(parent, f"{_STRUCTURE}{tag}", {"id": id, **more})
    label = Xml.SubElement(found, f"{_COMMON}Name", {"{http://www.w3.org/XML/1998/namespace}lang": "en"})
    label.text = "".join(c if c >= " " or c in "\t\n" else "\ufffd" for c in name)
    return found


def _component(
    parent: Xml.Element, tag: str, component: StructureComponent, flow: _Flow, **more: str
) -> Xml.Element:
    found = Xml.SubElement(parent, f"{_STRUCTURE}{tag}", {"id": component.id, **more})
    concept = f"{_URN}conceptscheme.Concept={flow.agency}:CS_{flow.id}({VERSION}).{component.id}"
    Xml.SubElement(found, f"{_STRUCTURE}ConceptIdentity").text = concept
    held = Xml.SubElement(found, f"{_STRUCTURE}LocalRepresentation")
    if component.codes is None:
        Xml.SubElement(held, f"{_STRUCTURE}TextFormat", textType="Double")
    else:
        codelist = f"{_URN}codelist.Codelist={flow.agency}:CL_{flow.id}_{component.id}({VERSION})"
        Xml.SubElement(held, f"{_STRUCTURE}Enumeration").text = codelist
    return found
