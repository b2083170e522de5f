"""What the generators of C and of Triton kernels share.

`statements` is what a kernel does, `printer` makes it text, `dataflow` says who reads which value
of a step, `ondemand` computes each value where it is first read, `names` says what all is called.
"""
