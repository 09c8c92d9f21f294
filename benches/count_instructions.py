#!/usr/bin/env python3
"""Counts the user-mode instructions that a busy server executes per answer, without a PMU.

    count_instructions.py PID SECONDS        (and on to the end of the event loop's round)

For virtual machines that hide their hardware counters. The busiest thread of PID is stepped with
ptrace, one instruction at a time, while somebody else keeps it busy; an answer is a call of send,
sendmsg, write or writev, of which a server that answers one request at a time makes one for each.
A repeated string instruction counts once, as the hardware counts it. Stepping slows the server a
thousandfold, which changes when its instructions run and not which. Prints one line of JSON.
"""

import ctypes
import json
import os
import signal
import sys
import time

PTRACE_SINGLESTEP, PTRACE_GETREGS, PTRACE_DETACH = 9, 12, 17
PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4206, 0x4207
WALL = 0x40000000
# Places in user_regs_struct of x86-64, and its system call numbers.
REGISTERS, ORIG_RAX, RIP = 27, 15, 16
ANSWERS = {1, 20, 44, 46}  # write, writev, sendto, sendmsg
WAITS = {232, 281, 441}  # epoll_wait, epoll_pwait, epoll_pwait2

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def ptrace(request, thread, address=None, data=None):
    if libc.ptrace(request, thread, address, data) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def busiest_thread(pid):
    def used(thread):
        with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
            return int(file.read().split()[0])

    threads = os.listdir(f"/proc/{pid}/task")
    before = {thread: used(thread) for thread in threads}
    time.sleep(0.5)
    return int(max(threads, key=lambda thread: used(thread) - before[thread]))


def count(thread, seconds):
    registers = (ctypes.c_ulonglong * REGISTERS)()
    place = ctypes.addressof(registers)
    instructions = answers = last_rip = 0
    # From one wait for events to another: a server may read all requests before it answers any.
    waited = False
    deadline = time.monotonic() + seconds
    while True:
        ptrace(PTRACE_SINGLESTEP, thread)
        _, status = os.waitpid(thread, WALL)
        if not os.WIFSTOPPED(status):
            raise SystemExit("the server ended")
        ptrace(PTRACE_GETREGS, thread, None, place)
        rip = registers[RIP]
        if rip == last_rip:
            continue
        last_rip = rip
        instructions += 1
        call = registers[ORIG_RAX]
        if call in ANSWERS:
            answers += 1
        elif call in WAITS:
            if waited and answers > 0 and time.monotonic() > deadline:
                return instructions, answers
            if not waited:
                waited, instructions, answers = True, 0, 0


def main():
    if len(sys.argv) != 3 or os.uname().machine != "x86_64":
        sys.exit(__doc__)
    thread = busiest_thread(int(sys.argv[1]))
    ptrace(PTRACE_SEIZE, thread)
    ptrace(PTRACE_INTERRUPT, thread)
    os.waitpid(thread, WALL)
    try:
        instructions, answers = count(thread, float(sys.argv[2]))
    finally:
        ptrace(PTRACE_DETACH, thread)
    print(json.dumps({
        "instructions": instructions,
        "answers": answers,
        "instructions_per_answer": instructions / answers,
    }))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    main()
