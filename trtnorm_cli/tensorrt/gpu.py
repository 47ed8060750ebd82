"""The NVIDIA GPUs of this machine, from the CUDA driver itself. Makes no CUDA context."""

from __future__ import annotations

import ctypes

_NAME_BYTES = 256
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR


def device_names() -> tuple[str, ...]:
    """Each GPU as ``NVIDIA RTX A2000 (sm_86)``. There is none without a driver that starts."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ()
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return ()
    return tuple(_described(driver, index) for index in range(count.value))


def driver_cuda() -> tuple[int, int] | None:
    """The newest CUDA version that the driver runs, as major and minor, or None without a driver."""
    version = ctypes.c_int(0)
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    if driver.cuDriverGetVersion(ctypes.byref(version)) != 0 or version.value == 0:
        return None
    return version.value // 1000, version.value % 1000 // 10


def _described(driver: ctypes.CDLL, index: int) -> str:
    device, name = ctypes.c_int(0), ctypes.create_string_buffer(_NAME_BYTES)
    driver.cuDeviceGet(ctypes.byref(device), index)
    driver.cuDeviceGetName(name, _NAME_BYTES, device)
    numbers = []
    for attribute in (_MAJOR, _MINOR):
        value = ctypes.c_int(0)
        driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        numbers.append(value.value)
    return f"{name.value.decode(errors='replace')} (sm_{numbers[0]}{numbers[1]})"
