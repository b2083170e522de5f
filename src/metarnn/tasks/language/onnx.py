"""Parts of language models as ONNX."""

from __future__ import annotations

from torch import nn

from metarnn.layers.onnx import Builder


def write_adaptive_softmax(b: Builder, y: str, adaptive: nn.AdaptiveLogSoftmaxWithLoss) -> str:
    """The log-probabilities of all tokens, y [..., n] -> [..., V].

    The head scores the frequent tokens and one entry for each cluster of rarer ones:
    log p(token) = log p(cluster) + log p(token | cluster).
    """
    head = b.add("LogSoftmax", b.linear(y, adaptive.head.weight, adaptive.head.bias), axis=-1)

    def columns(start: int, stop: int) -> str:
        return b.add("Slice", head, b.ints(start), b.ints(stop), b.ints(-1))

    frequent = adaptive.shortlist_size
    parts = [columns(0, frequent)]
    for k, cluster in enumerate(adaptive.tail, frequent):
        logits = y
        for layer in cluster.children():
            assert isinstance(layer, nn.Linear)
            logits = b.linear(logits, layer.weight, None)
        parts.append(b.add("Add", columns(k, k + 1), b.add("LogSoftmax", logits, axis=-1)))
    return b.add("Concat", *parts, axis=-1)
