"""From a lesson's numbers per token to packed microbatches, for the policy and for the critic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from agentrl_jax.algorithms.crediting import Studied
from agentrl_jax.algorithms.critics import CriticBatch, CriticConfig
from agentrl_jax.algorithms.policy_loss import PolicyGradientBatch
from agentrl_jax.algorithms.scoring import Scored, columns_of
from agentrl_jax.batch import Layout, pack, pack_branches, split
from agentrl_jax.hosts import Hosts
from agentrl_jax.rows import Indices, Row
from agentrl_jax.shares import Share, settle

Values = Mapping[str, np.ndarray]
At = tuple[np.ndarray, np.ndarray]


@dataclass
class Sharing:
    """Rows that begin with the same prompt keep it once in a bin: `prompt` columns for it, then the own tokens of `rows` rows.

    The update is the same; what it computes is less where prompts are long and a group's rows are of about one length.
    """

    prompt: int = 0  # 0: nothing is shared; what a prompt has more belongs to each row
    rows: int = 8


@dataclass(frozen=True)
class Packer:
    """Rows into microbatches of one shape."""

    share: Share
    length: int
    sharing: Sharing
    rows: int  # of this process's microbatch
    names: Mapping[str, Sequence[str]]  # of each regulariser's data

    def scored(self, rows: Sequence[Row], indices: Indices, hosts: Hosts) -> Scored:
        """All rows, for models to read."""
        return Scored(self._settled(rows, hosts), indices, self.rows)

    def policy(self, course: Studied, share: np.ndarray, hosts: Hosts) -> list[PolicyGradientBatch]:
        """Microbatches of some groups. Rows whose every loss is exactly 0 are left out; their weights still count."""
        mine, lesson = course.pool.mine, course.lesson
        part, tokens, where = course.part(share)
        weight = lesson.weight(part, tokens)[mine[tokens]]
        columns = {name: values[where] for name, values in course.columns.items()} | {"weight": weight}
        data = {
            name: {key: lesson.data[name][key][mine][where] if name in lesson.data else np.zeros(len(weight)) for key in keys}
            for name, keys in self.names.items()
        }
        losses = [columns["advantage"], columns["likelihood"], *(values for one in data.values() for values in one.values())]
        row = course.indices.token_row[where]
        useful = np.unique(row[np.logical_or.reduce([values != 0 for values in losses]) & (weight != 0)])
        layout = self._settled([course.rows[r] for r in useful], hosts)
        if layout is None:
            return []
        keep = np.isin(row, useful)
        at = np.searchsorted(useful, row[keep]), course.indices.token_position[where][keep]
        columns = {name: values[keep] for name, values in columns.items()}
        columns["ids"] = columns_of(layout, *at, columns["sequence"])
        data = {name: {key: values[keep] for key, values in one.items()} for name, one in data.items()}
        return split(_filled(layout, at, columns, data), self.rows)

    def critic(self, course: Studied, share: np.ndarray, config: CriticConfig, hosts: Hosts) -> list[CriticBatch]:
        """Microbatches of all tokens of some groups, masked ones too."""
        part, tokens, where = course.part(share)
        weight = config.aggregation(part)[course.pool.mine[tokens]]
        row = course.indices.token_row[where]
        rows = np.unique(row)
        layout = self._settled([course.rows[r] for r in rows], hosts)
        if layout is None:
            return []
        at = np.searchsorted(rows, row), course.indices.token_position[where]
        target, value = (layout.scatter(course.columns[name][where], *at) for name in ("target", "value"))
        batch = CriticBatch(batch=layout.batch(layout.scatter(weight, *at)), target=target, proximal_value=value)
        return split(batch, self.rows)

    def padding(self) -> PolicyGradientBatch:
        """A microbatch of all processes without any row."""
        none = np.zeros(0)
        columns: Values = dict.fromkeys(("weight", "ids", "advantage", "likelihood", "proximal", "reference"), none)
        data = {name: dict.fromkeys(keys, none) for name, keys in self.names.items()}
        layout = pack((), self.length, self.rows * len(self.share.teams))
        return _filled(layout, (none.astype(np.int64), none.astype(np.int64)), columns, data)

    def _settled(self, rows: Sequence[Row], hosts: Hosts) -> Layout | None:
        if self.sharing.prompt:
            layout = pack_branches(rows, self.sharing.prompt, self.length, self.sharing.rows, self.rows)
        else:
            layout = pack(rows, self.length, self.rows)
        return settle(hosts, self.share, layout, self.rows)


def _filled(layout: Layout, at: At, columns: Values, data: Mapping[str, Values]) -> PolicyGradientBatch:
    def packed(values: np.ndarray) -> np.ndarray:
        return layout.scatter(values, *at)

    return PolicyGradientBatch(
        batch=layout.batch(packed(columns["weight"])), ids=packed(columns["ids"]).astype(np.int32),
        advantage=packed(columns["advantage"]), likelihood=packed(columns["likelihood"]), proximal_logp=packed(columns["proximal"]),
        ref_logp=packed(columns["reference"]), data={name: {key: packed(x) for key, x in one.items()} for name, one in data.items()},
    )  # fmt: skip
