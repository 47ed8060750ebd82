"""Fourier transforms. Real numbers have a last axis of length one, complex numbers one of length two."""

from __future__ import annotations

import numpy as np

from trtnorm_cli.evaluate.float64.kernels.call import Call, Kernel, one

AXIS_IS_INPUT_SINCE = 20


def _complex(x: np.ndarray) -> np.ndarray:
    return x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0]


def _pairs(x: np.ndarray) -> np.ndarray:
    return np.stack([x.real, x.imag], axis=-1)


def dft(call: Call) -> np.ndarray:
    """One-sided: forward gives half of the spectrum, inverse takes half of it and gives real numbers."""
    axis = call["axis"]
    if call.opset >= AXIS_IS_INPUT_SINCE:
        axis = int(np.ravel(call.input(2))[0]) if call.input(2) is not None else -2
    axis %= call.x.ndim
    signal = _complex(call.x)
    given = call.input(1)
    length = signal.shape[axis] if given is None else int(np.ravel(given)[0])
    if call["inverse"] and call["onesided"]:
        length = 2 * (length - 1) if given is None else length
        return np.fft.irfft(signal, n=length, axis=axis)[..., None]
    if call["inverse"]:
        return _pairs(np.fft.ifft(signal, n=length, axis=axis))
    spectrum = np.fft.fft(signal, n=length, axis=axis)
    return _pairs(np.take(spectrum, np.arange(length // 2 + 1), axis=axis) if call["onesided"] else spectrum)


def stft(call: Call) -> np.ndarray:
    """[batch, frames, bins, 2] of a signal [batch, samples, 1 or 2] (or without the last axis); no padding."""
    x, window, given = call.x, call.input(2), call.input(3)
    signal = _complex(x) if x.ndim == 3 else x
    step = int(np.ravel(call.inputs[1])[0])
    # Without a length and a window the signal is one frame.
    length = int(np.ravel(given)[0]) if given is not None else signal.shape[1] if window is None else len(window)
    frames = np.lib.stride_tricks.sliding_window_view(signal, length, axis=1)[:, ::step]
    spectrum = np.fft.fft(frames if window is None else frames * window, axis=-1)
    return _pairs(spectrum[..., : length // 2 + 1] if call["onesided"] else spectrum)


KERNELS: dict[str, Kernel] = {"DFT": one(dft), "STFT": one(stft)}
