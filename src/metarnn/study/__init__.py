"""The main job: from data to the best model that some minutes can buy.

study = metarnn.learn("book.txt", minutes=10)
print(study.summary)
"""

from metarnn.study.learn import Options, learn
from metarnn.study.study import Study

__all__ = ["Options", "Study", "learn"]
