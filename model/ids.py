"""Names for numbers and strings that must not be mixed up.

Law: a signature says which number it wants; `LogPosition` and `QueueOffset` are both ints and never the same thing.
Does not know: what any of them means. They cost a call when wrapped, so hot loops pass plain ints along.
"""

from typing import NewType

NodeId = NewType("NodeId", str)  # one member of a group, as the configuration names it
GroupId = NewType("GroupId", str)  # one Raft group = one commitlog
Incarnation = NewType("Incarnation", int)  # 62 random bits, new for every empty directory: a wiped node is another node
ProducerId = NewType("ProducerId", str)  # who numbers batches for deduplication
Term = NewType("Term", int)
LogPosition = NewType("LogPosition", int)  # byte position in the commitlog = Raft index
QueueId = NewType("QueueId", int)
QueueOffset = NewType("QueueOffset", int)  # counts messages of one queue, without gaps
