"""All that the scheduler can ask its loop to do, in the order in which it is to be done."""

from ...protocol.base import Message
from ...protocol.lifecycle import ToSupervisor
from ...protocol.replies import SchedulerReply
from ...protocol.steps import ToWorker


class SendClient(Message, frozen=True):
    """Send a reply to a client."""

    client: bytes  # ZeroMQ identity
    message: SchedulerReply


class SendWorker(Message, frozen=True):
    """Send a plan to a rank of a worker."""

    worker: int  # worker group
    rank: int
    message: ToWorker


class SendSupervisor(Message, frozen=True):
    """Answer whoever started the processes."""

    message: ToSupervisor


class Log(Message, frozen=True):
    """Write a line to the log."""

    level: int  # of the logging module
    text: str


Command = SendClient | SendWorker | SendSupervisor | Log
