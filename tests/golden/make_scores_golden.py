#!/usr/bin/env python3
"""Writes the golden file scores.h5: the seasonal climatology, scores and spectra, computed with numpy alone.

    python tests/golden/make_scores_golden.py

needs numpy and h5py. README.md beside this script says what the file holds.
"""

from datetime import datetime, timedelta
from pathlib import Path

import h5py
import numpy as np

HERE = Path(__file__).resolve().parent
CHANNELS, HEIGHT, WIDTH = 2, 4, 6
TIMES, HOURS, HARMONICS = 800, 12, 2  # 400 days, so that the turn of a year lies within
FIRST = datetime(2015, 9, 1)  # 2016 is a leap year
LEADS, STARTS = 4, 3
LATITUDES = np.array([75.0, 40.0, 5.0, -30.0])


def fraction_of_year(date):
    begin, end = datetime(date.year, 1, 1), datetime(date.year + 1, 1, 1)
    return (date - begin) / (end - begin)


def basis(dates, harmonics):
    angle = 2 * np.pi * np.array([fraction_of_year(d) for d in dates])
    columns = [np.ones_like(angle)]
    for h in range(1, harmonics + 1):
        columns += [np.cos(h * angle), np.sin(h * angle)]
    return np.stack(columns, 1)


def fit(fields, dates, harmonics):
    """Coefficients [times of day, basis, channels, rows, columns], point by point over the values that are there."""
    hours = sorted({d.hour for d in dates})
    columns = basis(dates, harmonics)
    result = np.full((len(hours), columns.shape[1]) + fields.shape[1:], np.nan)
    for s, hour in enumerate(hours):
        own = np.array([d.hour == hour for d in dates])
        for at in np.ndindex(fields.shape[1:]):
            values = fields[(own,) + at]
            there = ~np.isnan(values)
            if there.any():
                result[(s, slice(None)) + at] = np.linalg.lstsq(columns[own][there], values[there], rcond=None)[0]
    return result


def climatology(coefficients, dates):
    hours = sorted({0, 12})
    columns = basis(dates, (coefficients.shape[1] - 1) // 2)
    return np.stack([np.tensordot(columns[i], coefficients[hours.index(d.hour)], 1) for i, d in enumerate(dates)])


def root_mean_square(values):
    return np.sqrt(np.nanmean(values**2, axis=(0, 2, 3)))


def weighted(values, there):
    """Mean over the grid's points that are there."""
    weights = np.cos(np.deg2rad(LATITUDES))[:, None] * there
    return np.sum(np.where(there, values, 0) * weights, axis=(-2, -1)) / np.sum(weights, axis=(-2, -1))


def correlation(f, o, c):
    there = ~np.isnan(f) & ~np.isnan(o) & ~np.isnan(c)
    return weighted((f - c) * (o - c), there) / np.sqrt(
        weighted((f - c) ** 2, there) * weighted((o - c) ** 2, there)
    )


def power(rows, goes_round):
    """[..., rows, columns] to [..., rows, wavenumbers from 1 on]."""
    if not goes_round:
        line = (rows[..., -1:] - rows[..., :1]) / (WIDTH - 1)
        rows = rows - line * np.arange(WIDTH)
    squares = np.abs(np.fft.rfft(rows))[..., 1:] ** 2 / WIDTH**2
    squares[..., : (WIDTH - 1) // 2] *= 2
    return squares


def write_climatology(file, random):
    dates = [FIRST + timedelta(hours=HOURS * i) for i in range(TIMES)]
    season = basis(dates, 1) @ np.array([280.0, -9.0, 4.0])
    day = np.array([2.5 if d.hour == 12 else 0.0 for d in dates])
    weather = np.zeros((TIMES, CHANNELS, HEIGHT, WIDTH))
    for t in range(1, TIMES):
        weather[t] = 0.8 * weather[t - 1] + random.standard_normal(weather.shape[1:])
    fields = (season + day)[:, None, None, None] + weather
    fields[:, 1] = 1e5 + 300 * fields[:, 1]  # like a pressure in Pa
    fields = fields.astype(np.float32)
    gaps = random.random(fields.shape) < 0.2
    gaps[:, 0, 1, 2] = True  # never there
    for name, values in (("whole", fields), ("gaps", np.where(gaps, np.float32(np.nan), fields))):
        group = file.create_group(name)
        wide = values.astype(np.float64)
        coefficients = fit(wide, dates, HARMONICS)
        changes = wide[1:] - wide[:-1]
        of_changes = fit(changes, dates[1:], HARMONICS)
        group["coefficients"] = coefficients
        group["departure_stds"] = root_mean_square(wide - climatology(coefficients, dates))
        group["change_stds"] = np.nanstd(changes, axis=(0, 2, 3))
        group["departure_change_stds"] = root_mean_square(changes - climatology(of_changes, dates[1:]))
        later = [FIRST + timedelta(days=days, hours=12) for days in (0, 122, 181, 1000)]
        group["later"] = climatology(coefficients, later)
    file["fields"] = fields
    file.create_dataset("missing", data=gaps.astype(np.float32), compression="gzip", shuffle=True)
    file.attrs["first"] = FIRST.strftime("%Y-%m-%dT%H:%M")
    file.attrs["minutes"], file.attrs["harmonics"] = 60 * HOURS, HARMONICS


def write_scores(file, random):
    shape = (STARTS, LEADS, CHANNELS, HEIGHT, WIDTH)
    seasonal = random.standard_normal(shape) * 0.2 + 5
    mean = random.standard_normal(shape[2:]) * 0.3 + 4.5
    target = seasonal + random.standard_normal(shape)
    error = random.standard_normal(shape) * np.linspace(0.2, 1.6, LEADS)[None, :, None, None, None]
    forecast = target + error + 0.1
    persistence = (target[:, 0] + 0.7 * random.standard_normal(target[:, 0].shape)).astype(np.float32)
    seasonal, mean, target, forecast = (a.astype(np.float32) for a in (seasonal, mean, target, forecast))
    target[:, :, 1, 2, 3] = target[1, 2, 1, 0] = np.nan
    mean[0, 3, 5] = np.nan
    group = file.create_group("scores")
    for name, values in (
        ("forecast", forecast), ("target", target), ("persistence", persistence),
        ("seasonal", seasonal), ("mean", mean), ("latitudes", LATITUDES),
    ):
        group[name] = values
    f, o, s = (a.astype(np.float64) for a in (forecast, target, seasonal))
    p = np.broadcast_to(persistence[:, None].astype(np.float64), shape)
    m = np.broadcast_to(mean.astype(np.float64), shape)
    there = ~np.isnan(o)
    for name, other in (("model", f), ("persistence", p), ("climatology", m), ("seasonal", s)):
        both = there & ~np.isnan(other)
        square = weighted((other - o) ** 2, both)
        group["rmse_" + name] = np.sqrt(square).mean(0)
        group["pooled_" + name] = np.sqrt(square.mean(0))
    group["bias"] = weighted(f - o, there).mean(0)
    group["mae"] = weighted(np.abs(f - o), there).mean(0)
    for name, other in (("model", f), ("persistence", p)):
        group["acc_" + name] = correlation(other, o, m).mean(0)
        group["seasonal_acc_" + name] = correlation(other, o, s).mean(0)
    group["skill"] = 1 - group["pooled_model"][:] ** 2 / group["pooled_seasonal"][:] ** 2
    group["skill_over_persistence"] = 1 - group["pooled_model"][:] ** 2 / group["pooled_persistence"][:] ** 2
    acc = np.concatenate([np.ones((1, CHANNELS)), group["seasonal_acc_model"][:]])
    horizons = np.full(CHANNELS, np.inf)
    for c in range(CHANNELS):
        for lead in range(LEADS):
            if acc[lead + 1, c] < 0.6:
                horizons[c] = np.interp(-0.6, -acc[lead : lead + 2, c], [6.0 * lead, 6.0 * (lead + 1)])
                break
    group["horizons"] = horizons
    weights = np.cos(np.deg2rad(LATITUDES))[:, None]
    for name, goes_round in (("spectra_round", True), ("spectra_window", False)):
        powers = np.stack([power(a, goes_round) for a in (f, o)], 3)  # [starts, leads, channels, 2, rows, waves]
        whole = ~np.isnan(o).any(-1)[:, :, :, None, :, None]
        own = np.broadcast_to(np.where(whole, weights, 0.0), powers.shape)
        group[name] = (np.where(own > 0, powers, 0) * own).sum(-2).__truediv__(own.sum(-2)).mean(0)


with h5py.File(HERE / "scores.h5", "w") as golden:
    generator = np.random.default_rng(333)
    write_climatology(golden, generator)
    write_scores(golden, generator)
