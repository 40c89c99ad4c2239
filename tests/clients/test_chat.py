"""attend chat in a terminal and through a pipe."""

import fcntl
import os
import pty
import select
import subprocess
import termios
import time

from conftest import ANSWER, BINARY, MODEL, QUESTION

UP, CTRL_C, CTRL_D, CTRL_U = b"\x1b[A", b"\x03", b"\x04", b"\x15"


class Terminal:
    """attend chat in a terminal of its own."""

    def __init__(self, **environment):
        self.master, terminal = pty.openpty()
        self.chat = subprocess.Popen(
            [BINARY, "chat", "--model-path", str(MODEL)], stdin=terminal, stdout=terminal, stderr=terminal,
            env=os.environ | {"TERM": "xterm"} | environment, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # Ctrl-C signals this process
        )
        os.close(terminal)
        self.output = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.chat.kill()
        self.chat.wait()
        os.close(self.master)

    def wait_for(self, text):
        """Waits for the text, returns the output before it, and continues after it in the next call."""
        deadline = time.monotonic() + 30
        while text not in self.output:
            assert select.select([self.master], [], [], max(0, deadline - time.monotonic()))[0], self.output
            self.output += os.read(self.master, 4096)
        before, _, self.output = self.output.partition(text)
        return before

    def type(self, text):
        os.write(self.master, text)

    def type_until_exit(self, keys):
        """Types the keys until the program ends: before libedit reads, the terminal passes Ctrl-D as a character."""
        deadline = time.monotonic() + 30
        while self.chat.poll() is None and time.monotonic() < deadline:
            self.type(keys)
            time.sleep(0.1)
        assert self.chat.returncode == 0


def test_terminal_has_line_history():
    with Terminal() as terminal:
        terminal.wait_for(b"> ")
        terminal.type(QUESTION.encode() + b"\n")
        assert ANSWER.encode() in terminal.wait_for(b"first token after")
        terminal.wait_for(b"> ")
        terminal.type(UP + b"\n")  # the previous line again
        assert ANSWER.encode() in terminal.wait_for(b"first token after")
        terminal.wait_for(b"> ")
        terminal.type(b"/nothing\n")
        terminal.wait_for(b"unknown command")
        terminal.type_until_exit(CTRL_U + CTRL_D)


def test_ctrl_c_clears_the_line_and_leaves_on_an_empty_one():
    with Terminal() as terminal:
        terminal.wait_for(b"> ")
        terminal.type(b"half a question that is not as")
        terminal.wait_for(b"not as")
        terminal.type(CTRL_C)
        time.sleep(0.2)  # a signal discards input that was not read
        terminal.type(QUESTION.encode() + b"\n")
        assert ANSWER.encode() in terminal.wait_for(b"first token after")
        terminal.wait_for(b"> ")
        terminal.type(b"/history\n")
        assert b"half" not in terminal.wait_for(b"assistant:")
        terminal.wait_for(b"> ")
        terminal.type_until_exit(CTRL_C)


def test_ctrl_c_clears_a_turn_of_several_lines():
    with Terminal() as terminal:
        terminal.wait_for(b"> ")
        terminal.type(b'"""first line\n')
        terminal.wait_for(b". ")
        terminal.type(CTRL_C)
        terminal.wait_for(b"> ")
        terminal.type(b"/history\n")
        terminal.wait_for(b"> ")
        assert terminal.chat.poll() is None
        terminal.type_until_exit(CTRL_U + CTRL_D)


def test_multibyte_characters_are_edited_as_one():
    with Terminal(LC_ALL="C.UTF-8") as terminal:
        terminal.wait_for(b"> ")
        terminal.type("/système ü".encode() + b"\x7f\x7f\n")  # removes the last two characters
        terminal.wait_for("/système: unknown command".encode())
        terminal.type_until_exit(CTRL_U + CTRL_D)


def test_pipe_output_contains_only_answers():
    run = subprocess.run([BINARY, "chat", "--model-path", str(MODEL)], input=QUESTION + "\n", capture_output=True, text=True)
    assert run.returncode == 0 and run.stdout == ANSWER + "\n"
