"""The letters that papers give to the values of a step."""

from __future__ import annotations

from metarnn.graph.graph import Graph


class Roles:
    """What a value is for, so that it can be called by the letter that papers use."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.nodes = graph, graph.nodes
        self.users: dict[int, list[int]] = {k: [] for k in range(len(graph.nodes))}
        for k, node in enumerate(graph.nodes):
            for a in node.args:
                self.users[a].append(k)

    def letter(self, k: int) -> str:
        """i, f, o, r, z for gates by what they multiply, g for a candidate, u for the rest."""
        node = self.nodes[k]
        if node.op == "tanh":
            return "g"
        if node.op != "sigmoid":
            return "u"
        if any(self.nodes[u].op == "sub" and self.nodes[u].args[1] == k for u in self.users[k]):
            return "z"
        partners = []
        for u in self.users[k]:
            if self.nodes[u].op == "mul":
                (partner,) = [a for a in self.nodes[u].args if a != k] or [k]
                found = self._partner(partner)
                into_product = any(self.nodes[w].op == "linear" for w in self.users[u])
                partners.append("r" if found == "f" and into_product else found)
        return next((p for p in ("r", "f", "i", "o") if p in partners), "s")

    def _partner(self, k: int) -> str:
        node = self.nodes[k]
        if node.op == "state":
            return "f"
        if node.op in ("linear", "slice"):
            return "r"
        next_states = set(self.graph.next_states)
        if node.op == "tanh":
            return "o" if self.graph.needed([k]) & next_states else "i"
        return "o" if k in next_states else "u"
