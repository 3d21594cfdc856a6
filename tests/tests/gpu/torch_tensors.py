"""Memory that PyTorch has allocated, used by Warpway: torch_tensors.py CASE --library libwarpway_foreign.so

Two ranks, each a process on a GPU of its own. Tensors and parts of them are registered, put, got, signalled and sent by
port channels; PyTorch writes what is sent and compares what has come, byte by byte, also beside it.

CASE is one of
  slices      tensors of all sizes and parts of them, several in one segment of PyTorch's allocator
  freed       registrations end before the tensor, tensors are freed and others lie at the same address
  refused     what cannot be registered has an error that says so
  expandable  the same tensors where PyTorch maps its segments piece by piece (expandable_segments:True)

Ends with 0 if all was right. Prints a line that begins with `skipped: ` where PyTorch or a second GPU is missing.
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import time

# Until when both ranks must have ended.
PATIENCE = 100
PUT, GET, PORT, COPY = range(4)
WAYS = ["put", "get", "port", "copy"]
TEXT = 4000


class Refused(Exception):
    """What Warpway says."""


class Warpway:
    """The library, as rank `self.me` calls it."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        pointer, number = ctypes.c_void_p, ctypes.c_uint64
        for name, result, arguments in [
            ("join", pointer, []),
            ("leave", ctypes.c_uint32, [pointer]),
            ("barrier", ctypes.c_uint32, [pointer]),
            ("find", ctypes.c_uint32, [pointer, number, number, pointer]),
            ("register", pointer, [pointer, number, number]),
            ("pair", pointer, [pointer, pointer, pointer]),
            ("exchange", ctypes.c_uint32, [pointer, pointer, number, number, number, number]),
        ]:
            function = getattr(self.library, f"foreign_{name}")
            function.restype, function.argtypes = result, [*arguments, pointer]
        for name in ("forget", "unpair"):
            function = getattr(self.library, f"foreign_{name}")
            function.restype, function.argtypes = None, [pointer]
        self.me = int(os.environ["WARPWAY_RANK"])
        self.rank = self.call("join")

    def call(self, name, *arguments):
        text = ctypes.create_string_buffer(TEXT)
        result = getattr(self.library, f"foreign_{name}")(*arguments, text)
        if not result:
            raise Refused(text.value.decode(errors="replace"))
        return result

    def barrier(self):
        self.call("barrier", self.rank)

    def leave(self):
        self.call("leave", self.rank)

    def find(self, tensor):
        """Base, bytes and kind of the allocation that a tensor lies in."""
        found = (ctypes.c_uint64 * 3)()
        self.call("find", self.rank, tensor.data_ptr(), tensor.numel() * tensor.element_size(), found)
        return tuple(found)

    def register(self, tensor):
        assert tensor.is_contiguous()
        return Memory(self, tensor.data_ptr(), tensor.numel() * tensor.element_size())


class Memory:
    """A registration, ended by `forget`."""

    def __init__(self, warpway, address, size):
        self.warpway = warpway
        self.handle = warpway.call("register", warpway.rank, address, size)

    def forget(self):
        self.warpway.library.foreign_forget(self.handle)


class Pair:
    """Channels from a tensor here to a tensor of the peer, and the way back. Both ranks make one at the same time."""

    def __init__(self, warpway, source, received):
        self.warpway, self.source, self.received = warpway, source, received
        self.memories = [warpway.register(source), warpway.register(received)]
        self.handle = warpway.call("pair", warpway.rank, *(memory.handle for memory in self.memories))

    def end(self):
        """The peer lets go as well before this returns: then the tensors may be freed."""
        self.warpway.library.foreign_unpair(self.handle)
        for memory in self.memories:
            memory.forget()
        self.warpway.barrier()

    def exchange(self, turn, pieces, guards=()):
        """Sends parts in all ways; `guards` are tensors that lie beside and must not change."""
        import torch

        n, me, peer = self.source.numel(), self.warpway.me, 1 - self.warpway.me
        assert self.received.numel() == n
        kept = [guard.clone() for guard in guards]
        for way in (PUT, GET, PORT, COPY):
            for target, origin, size in pieces:
                size = min(size, n - target, n - origin)
                mine, canaries = pattern(n, me + 10 * turn), pattern(n, 5 + me + 10 * turn)
                self.source.copy_(mine)
                self.received.copy_(canaries)
                torch.cuda.synchronize()
                self.warpway.barrier()
                self.warpway.call("exchange", self.warpway.rank, self.handle, way, target, origin, size)
                wanted = [mine, canaries]
                if way == GET:
                    there = pattern(n, 5 + peer + 10 * turn)
                    mine[target:target + size] = there[origin:origin + size]
                else:
                    there = pattern(n, peer + 10 * turn)
                    canaries[target:target + size] = there[origin:origin + size]
                for what, found, expected in zip(("source", "received"), (self.source, self.received), wanted):
                    assert torch.equal(found, expected), f"{what}: {WAYS[way]} of {size} bytes from {origin} to {target}"
                turn += 1
        for guard, before in zip(guards, kept):
            assert torch.equal(guard, before), "a tensor beside has changed"
        return turn


def pattern(n, seed):
    """Bytes in which no two neighbours are alike."""
    import torch

    at = torch.arange(n, device="cuda", dtype=torch.int64)
    return ((at * 29 + at // 256 + seed * 37) % 256).to(torch.uint8)


def of_bytes(n):
    import torch

    return torch.empty(n, dtype=torch.uint8, device="cuda")


# Offset in the peer's tensor, in this rank's, bytes: cut to what a tensor has.
PIECES = [(0, 0, 1 << 40), (0, 0, 1), (1, 3, 4097), (7, 9, 255), (16, 0, 1 << 20), (257, 5, 1 << 40)]


def segment_of(address):
    """First byte and bytes of PyTorch's segment around an address."""
    import torch

    for segment in torch.cuda.memory_snapshot():
        if segment["address"] <= address < segment["address"] + segment["total_size"]:
            return segment["address"], segment["total_size"]
    raise AssertionError(f"PyTorch knows no segment at {address:#x}")


def tensors():
    """Name, source, received, tensors beside them; all of them bytes."""
    import torch

    small = [of_bytes(1000) for _ in range(6)]
    yield "small, in one segment", small[1], small[4], [small[0], small[2], small[3], small[5]]
    whole = [of_bytes(100_000) for _ in range(2)]
    cut = [tensor[12_345:77_777] for tensor in whole]
    beside = [part for tensor in whole for part in (tensor[:12_345], tensor[77_777:])]
    yield "slices at odd offsets", *cut, beside
    halves = [torch.zeros(300, 1001, dtype=torch.float16, device="cuda") for _ in range(2)]
    rows = [matrix[17:120].view(-1).view(torch.uint8) for matrix in halves]
    yield "rows of a matrix", *rows, [part for matrix in halves for part in (matrix[:17], matrix[120:])]
    middle = [of_bytes((3 << 20) + 1) for _ in range(3)]
    yield "in a segment of 20 MiB", middle[0], middle[2], [middle[1]]
    large = [of_bytes((33 << 20) + 5) for _ in range(2)]
    cut = [tensor[(1 << 20) + 1:-7] for tensor in large]
    yield "slices of a large tensor", *cut, [part for tensor in large for part in (tensor[:(1 << 20) + 1], tensor[-7:])]
    yield "one tensor to another part of itself", *whole_in_two(of_bytes((5 << 20) + 2)), []


def whole_in_two(tensor):
    half = tensor.numel() // 2
    return tensor[:half], tensor[half:]


def filled(guards):
    for number, guard in enumerate(guards):
        flat = guard.view(-1)
        flat.copy_((pattern(flat.numel(), 40 + number) % 100).to(flat.dtype))


def slices(warpway):
    turn = 0
    for name, source, received, guards in tensors():
        filled(guards)
        for tensor in (source, received):
            base, size, kind = warpway.find(tensor)
            assert (base, size) == segment_of(tensor.data_ptr()), f"{name}: the driver knows another segment"
            assert kind == 1, f"{name}: exported in way {kind}, not by CUDA IPC"
        pair = Pair(warpway, source, received)
        turn = pair.exchange(turn, PIECES, guards)
        pair.end()
        figure(warpway, name=name, bytes=source.numel(), offset=source.data_ptr() - warpway.find(source)[0])
    # Many ranges of few segments at once, which a peer maps once each.
    many = [of_bytes(10_000 + 97 * i) for i in range(40)]
    pairs = [Pair(warpway, tensor[:4000], tensor[5000:9000]) for tensor in many]
    for pair in pairs:
        turn = pair.exchange(turn, [(0, 0, 1 << 40), (3, 1, 999)])
    for pair in pairs:
        pair.end()


def freed(warpway):
    import torch

    turn, same, same_block = 0, 0, 0
    for size in [1000, 3 << 20, (33 << 20) + 5]:
        pieces = PIECES[:3]
        # A registration ends, the tensor lives on, and is registered again.
        tensor = of_bytes(2 * size)
        for _ in range(3):
            pair = Pair(warpway, tensor[:size], tensor[size:])
            turn = pair.exchange(turn, pieces)
            kept = tensor.clone()
            pair.end()
            assert torch.equal(tensor, kept)
            tensor.copy_(pattern(2 * size, turn))
        # Another tensor in the same segment, at the same place: only PyTorch knows.
        address = tensor.data_ptr()
        del tensor
        tensor = of_bytes(2 * size)
        same_block += tensor.data_ptr() == address
        pair = Pair(warpway, tensor[:size], tensor[size:])
        turn = pair.exchange(turn, pieces)
        pair.end()
        # Another segment, at the same place if the driver gives it again. The peer must not find what was there before.
        for _ in range(3):
            address = tensor.data_ptr()
            del tensor, kept
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            tensor = of_bytes(2 * size)
            kept = tensor.clone()
            same += tensor.data_ptr() == address
            pair = Pair(warpway, tensor[:size], tensor[size:])
            turn = pair.exchange(turn, pieces)
            pair.end()
        del tensor, kept
        torch.cuda.empty_cache()
    figure(warpway, same_address=same, same_block=same_block)


def refused(warpway):
    import torch

    tensor = of_bytes(3 << 20)
    base, size, _ = warpway.find(tensor)
    address = tensor.data_ptr()
    host = torch.zeros(1000, dtype=torch.uint8)
    other = torch.zeros(1000, dtype=torch.uint8, device=f"cuda:{1 - torch.cuda.current_device()}")
    for what, at, length, wanted in [
        ("beyond its segment", address, base + size - address + 1, "mem.bounds"),
        ("memory of the host", host.data_ptr(), 1000, "mem.invalid"),
        ("another GPU's", other.data_ptr(), 1000, "gpu.device"),
        ("nothing", 0, 1000, "mem.invalid"),
        ("no bytes", address, 0, "mem.invalid"),
    ]:
        expect_refusal(warpway, what, at, length, wanted)
    del tensor
    torch.cuda.empty_cache()
    expect_refusal(warpway, "freed", address, 1000, "mem.invalid")
    # Nothing of that has harmed the communicator.
    tensor = of_bytes(2000)
    pair = Pair(warpway, tensor[:1000], tensor[1000:])
    pair.exchange(0, PIECES)
    pair.end()


def expect_refusal(warpway, what, address, length, wanted):
    try:
        Memory(warpway, address, length)
    except Refused as refusal:
        assert str(refusal).startswith(f"{wanted}: "), f"{what}: {refusal}"
        figure(warpway, what=what, refusal=str(refusal))
    else:
        raise AssertionError(f"{what}: registered")


def expandable(warpway):
    """Each tensor works, or is refused by both ranks with words that name the cause."""
    turn, worked = 0, 0
    for name, source, received, guards in tensors():
        filled(guards)
        try:
            for tensor in (source, received):
                warpway.register(tensor).forget()
        except Refused as refusal:
            assert "expandable segments" in str(refusal), refusal
            figure(warpway, name=name, bytes=source.numel(), refusal=str(refusal))
            warpway.barrier()
            continue
        pair = Pair(warpway, source, received)
        turn = pair.exchange(turn, PIECES, guards)
        pair.end()
        worked += 1
        base, size, kind = warpway.find(source)
        figure(warpway, name=name, bytes=source.numel(), allocation=size, offset=source.data_ptr() - base, kind=kind)
    # Registered at the same time, in several pieces of one segment.
    many = [of_bytes(100_000) for _ in range(60)]
    pairs, bases = [], set()
    for tensor in many:
        try:
            warpway.register(tensor).forget()
        except Refused as refusal:
            assert "expandable segments" in str(refusal), refusal
        else:
            pairs.append(Pair(warpway, tensor[:50_000], tensor[50_000:]))
            bases.add(warpway.find(tensor)[0])
    for pair in pairs:
        turn = pair.exchange(turn, PIECES[:3])
    for pair in pairs:
        pair.end()
    figure(warpway, worked=worked, pairs=len(pairs), pieces=len(bases))


def figure(warpway, **values):
    if warpway.me == 0:
        print(json.dumps(values), flush=True)


CASES = {"slices": slices, "freed": freed, "refused": refused, "expandable": expandable}


def run_rank(case, library):
    import torch

    torch.cuda.set_device(int(os.environ["WARPWAY_RANK"]))
    # Makes the device's context current, by which Warpway chooses it.
    torch.zeros(1, device="cuda")
    warpway = Warpway(library)
    CASES[case](warpway)
    warpway.leave()


def unfit():
    """Why the machine cannot run this, or None."""
    question = "import torch; print(torch.__version__, torch.cuda.device_count())"
    asked = subprocess.run([sys.executable, "-c", question], capture_output=True, text=True, timeout=PATIENCE)
    if asked.returncode != 0:
        lines = asked.stderr.strip().splitlines()
        return f"PyTorch cannot be used: {lines[-1] if lines else asked.returncode}"
    version, devices = asked.stdout.split()
    print(json.dumps({"torch": version, "devices": int(devices)}), flush=True)
    return f"PyTorch {version} sees {devices} GPUs, two are needed" if int(devices) < 2 else None


def run_ranks(arguments):
    why = unfit()
    if why:
        print(f"skipped: {why}")
        return 0
    job = f"warpway-torch-{os.getpid()}"
    common = {
        "WARPWAY_WORLD_SIZE": "2",
        "WARPWAY_LOCAL_WORLD_SIZE": "2",
        "WARPWAY_JOB_ID": job,
        "WARPWAY_BOOTSTRAP_TOKEN": job,
        "WARPWAY_DEVICE_TIMEOUT_MS": "10000",
    }
    if arguments.case == "expandable":
        common["PYTORCH_CUDA_ALLOC_CONF"] = common["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    command = [sys.executable, __file__, arguments.case, "--library", arguments.library]
    ranks = []
    for rank in range(2):
        of_rank = {"WARPWAY_RANK": str(rank), "WARPWAY_LOCAL_RANK": str(rank)}
        ranks.append(subprocess.Popen(command, env=os.environ | common | of_rank))
    until = time.monotonic() + PATIENCE
    statuses = []
    for rank in ranks:
        try:
            statuses.append(rank.wait(max(0.1, until - time.monotonic())))
        except subprocess.TimeoutExpired:
            rank.kill()
            rank.wait()
            statuses.append("killed")
    print(f"{arguments.case}: ranks ended with {statuses}")
    return 0 if statuses == [0, 0] else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--library", required=True)
    arguments = parser.parse_args()
    if "WARPWAY_RANK" in os.environ:
        return run_rank(arguments.case, arguments.library)
    return run_ranks(arguments)


if __name__ == "__main__":
    sys.exit(main())
