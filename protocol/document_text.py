"""The part of `docs/protocol.md` that people wrote; `document` fills in the numbers and the bytes."""

TEXT = """\
# The wire

Generated from the message classes by `python -m octavo.protocol.document`; do not edit by hand.

Processes talk MessagePack over ZeroMQ. A program that has a ZeroMQ and a MessagePack library can be
a client of the scheduler; it needs nothing of Octavo. `scripts/zmq_client.py` is such a program in
about a hundred lines.

## Sockets and frames

- The scheduler binds a ROUTER; each client connects a DEALER. By default the endpoint is
  `ipc://<run directory>/clients`, in a directory that only the server's user can enter;
  `--zmq-endpoint` adds another one. `server.json` in the run directory names both and the
  fingerprint.
- One message is one frame. A ROUTER sees the sender's identity in front of it; a DEALER sends and
  receives the frame alone. There is no empty delimiter frame.
- An identity is chosen by the client (`ZMQ_IDENTITY`), unique among the scheduler's clients, and
  not starting with a zero byte. Eight random bytes behind the letter `c` are usual.
- A frame is at most {max_frame} MiB. The scheduler logs and drops a frame that does not decode.
- Set `ZMQ_HEARTBEAT_IVL` to {heartbeat} ms and `ZMQ_HEARTBEAT_TIMEOUT` to {dead_after} ms to learn
  of a dead scheduler.
- A client that does not read is not waited for: past a bound its requests end with
  `SlowClientError`.

## Messages

A message is a MessagePack **array**: the message's name, then its fields in the order of the tables
below. Fields at the end that have a default may be left out. Parts of messages are arrays without a
name. `SamplingParams` alone is a **map**. An unknown name, a wrong type, too many elements and an
unknown key are refused.

A **column** is a `bin` field that holds little-endian numbers one behind the other: int32, int64 or
float32, as the field says. Columns of one message that belong together are equally long.

## A request from beginning to end

1. Send `ClientHello` with the schema fingerprint of the tables you read, `{fingerprint}` for this
   page. The scheduler answers `Welcome` with the limits that requests must obey and whether it is
   ready, or, when it speaks another schema, a `Status` with `fatal` set. An empty fingerprint is
   accepted: then nobody has checked.
2. Send `Submit` with a number of your own choice. The answer is `Accepted`, or `Rejected` with the
   reason.
3. `Deltas` follow, one message for each step in which any of your requests got a token. Entry `i`
   of its columns is about choice `choice[i]` of request `request[i]`: the next `count[i]` numbers
   of `tokens` are its output tokens from index `start[i]` on. When `finish[i]` is not 0 the choice
   has ended. When all choices have ended, so has the request, and its number may be used again.
4. `Abort` ends a request early. `Finish` says that a choice is complete although its tokens did not
   say so, as after a stop string, which only a client that makes text can see.
5. Send `Alive` every second while requests are open. The answer is a `Status`. A client that is
   silent for long is taken for dead and its requests are ended.

**Exactly once.** `Submit` is idempotent on (client, request, attempt): sending it again changes
nothing and is answered again. To take a request up again, as after a new `incarnation` in `Welcome`
or `Status`, send it with the next `attempt` and the output tokens that you already have in
`delivered`. Ignore deltas of other attempts and tokens below the index you have; a gap is a fault
of the scheduler.

## Worked example

`ClientHello` as an array, and its frame:

```
{hello}
```
```
{hello_bytes}
```

`Submit` of the prompt tokens 9707 and 11, four greedy tokens wanted:

```
{submit}
```
```
{submit_bytes}
```

In Python with `zmq` and `msgpack`, everything a client needs:

```python
import struct, msgpack, zmq

socket = zmq.Context().socket(zmq.DEALER)
socket.setsockopt(zmq.IDENTITY, b"cexample")
socket.connect("ipc:///run/octavo/clients")
socket.send(msgpack.packb(["ClientHello", "{fingerprint}", "example"]))
name, incarnation, limits, ready, reason = msgpack.unpackb(socket.recv())

prompt = struct.pack("<2i", 9707, 11)
params = {{"temperature": 0.0, "max_tokens": 4}}
socket.send(msgpack.packb(["Submit", 1, 0, "example-1", prompt, params, 42]))
while True:
    name, *fields = msgpack.unpackb(socket.recv())
    if name == "Rejected":
        raise RuntimeError(fields[3])
    if name == "Deltas":
        finish, tokens = fields[5], fields[7]
        print(struct.unpack(f"<{{len(tokens) // 4}}i", tokens))
        if any(struct.unpack(f"<{{len(finish) // 4}}i", finish)):
            break
```
"""
