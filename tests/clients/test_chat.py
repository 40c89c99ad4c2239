"""attend chat in a terminal and through a pipe."""

import os
import pty
import select
import subprocess
import time

from conftest import ANSWER, BINARY, MODEL, QUESTION

UP, CTRL_D, CTRL_U = b"\x1b[A", b"\x04", b"\x15"


def test_terminal_has_line_history():
    master, terminal = pty.openpty()
    chat = subprocess.Popen([BINARY, "chat", "--model-path", str(MODEL)], stdin=terminal, stdout=terminal, stderr=terminal,
                            env=os.environ | {"TERM": "xterm"}, start_new_session=True)
    os.close(terminal)
    output = b""

    def wait_for(text):
        """Waits for the text, returns the output before it, and continues after it in the next call."""
        nonlocal output
        deadline = time.monotonic() + 30
        while text not in output:
            assert select.select([master], [], [], deadline - time.monotonic())[0], output
            output += os.read(master, 4096)
        before, _, output = output.partition(text)
        return before

    try:
        wait_for(b"> ")
        os.write(master, QUESTION.encode() + b"\n")
        assert ANSWER.encode() in wait_for(b"first token after")
        wait_for(b"> ")
        os.write(master, UP + b"\n")  # the previous line again
        assert ANSWER.encode() in wait_for(b"first token after")
        wait_for(b"> ")
        os.write(master, b"/nothing\n")
        wait_for(b"unknown command")
        # Before libedit reads its first key, the terminal passes Ctrl-D to it as a character. Ctrl-U and
        # Ctrl-D are therefore sent until the program ends.
        deadline = time.monotonic() + 30
        while chat.poll() is None and time.monotonic() < deadline:
            os.write(master, CTRL_U + CTRL_D)
            time.sleep(0.1)
        assert chat.returncode == 0
    finally:
        chat.kill()
        os.close(master)


def test_pipe_output_contains_only_answers():
    run = subprocess.run([BINARY, "chat", "--model-path", str(MODEL)], input=QUESTION + "\n", capture_output=True, text=True)
    assert run.returncode == 0 and run.stdout == ANSWER + "\n"
