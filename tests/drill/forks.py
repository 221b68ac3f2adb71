"""A process forks while other threads draw and create renderers; the child draws the same picture."""
import os
import signal
import threading
import time
import warnings

from sentnb.renderer import RenderConfig, TextRenderer

TEXT = "drawn after the fork, 飛機"


def _draw_in_child(renderer: TextRenderer, expected: bytes) -> None:
    signal.alarm(120) # ends a child that hangs, not one of a busy machine
    try:
        for drawing in (renderer, TextRenderer(renderer.config)):
            if drawing(["again", TEXT]).pixels.tobytes() != expected:
                os._exit(1)
        os._exit(0)
    except BaseException:
        os._exit(2)


def attempt(rng, folder) -> None:
    if not hasattr(os, "fork"):
        return
    renderer = TextRenderer(RenderConfig(strategy=rng.choice(["words", "bigrams", "continuous"])))
    expected = renderer(["again", TEXT]).pixels.tobytes()
    stop = threading.Event()

    def draw(number: int) -> None:
        own = TextRenderer(renderer.config)
        count = 0
        while not stop.is_set():
            own = TextRenderer(renderer.config) if count % 20 == 19 else own
            text = " ".join(f"{word}{number}{count}" for word in ["飛機", "plane", "हवाई"]*9)
            renderer([text])
            own([text])
            count += 1

    threads = [threading.Thread(target=draw, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(8):
            time.sleep(rng.random()/20)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning) # of Python: a process with threads forks
                child = os.fork()
            if not child:
                _draw_in_child(renderer, expected)
            _, status = os.waitpid(child, 0)
            assert status == 0, f"the child ended with status {status}"
    finally:
        stop.set()
        for thread in threads:
            thread.join()
