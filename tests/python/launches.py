"""Counts the kernel launches of a call on a GPU."""

import pytest


def num_launches(call):
    torch, runtime = pytest.importorskip("torch"), pytest.importorskip("cuda.bindings.runtime")
    call()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        call()
    error, _, num_nodes = runtime.cudaGraphGetNodes(runtime.cudaGraph_t(graph.raw_cuda_graph()), 64)
    assert error == runtime.cudaError_t.cudaSuccess
    return num_nodes
