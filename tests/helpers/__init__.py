"""What the tests share: the cells, their equations written anew, and how results are compared."""
