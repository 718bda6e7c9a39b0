# %%
# # Forecast
#
# You have one series and want the next year of it. `RoaForecaster` learns from windows of the past
# what follows them. You need the extras `[estimators]` and `[lab]`.

import sys

import matplotlib.pyplot as plt
import numpy as np

from roann.estimators import Options, RoaForecaster

QUICK = "--quick" in sys.argv  # few epochs only, to see that the script runs
EPOCHS, WIDTH = (60, 64) if not QUICK else (2, 8)
random = np.random.default_rng(0)

# %%
# ## The data
#
# Replace this cell by your own series, an array `(T,)`; NaN is a missing value. This one has 20
# years of months: growth, a season that grows with it, and noise that carries over from month to
# month.

months = np.arange(240)
noise = np.zeros(240)
for k in range(1, 240):
    noise[k] = 0.7 * noise[k - 1] + random.normal()
season = np.sin(2 * np.pi * months / 12) + 0.5 * np.cos(4 * np.pi * months / 12)
sales = (100 + months) * (1 + 0.15 * season) + 3 * noise
past, future = sales[:-12], sales[-12:]

# %%
# ## Fit and forecast
#
# `steps` is how many values you want, all at once. A `window` of two seasons lets the network see
# the last season whole. By default the network forecasts the change from the last value, so a
# trend may leave the range of the training data.

model = RoaForecaster(
    steps=12,
    window=24,
    hidden_size=WIDTH,
    max_epochs=EPOCHS,
    options=Options(n_networks=3),
    random_state=0,
)
model.fit(past)
forecast = model.predict()
print("forecast", forecast.shape)

# %%
# ## Is it good?
#
# A number alone says nothing. Compare with forecasts that cost nothing: repeat the last value,
# repeat the last season, and repeat it with the growth of a year. `score` is 1 for a perfect
# forecast and 0 for one that is no better than the first of these.

naive = {
    "last value": np.full(12, past[-1]),
    "last season": past[-12:],
    "last season + growth": past[-12:] + past[-12:].mean() - past[-24:-12].mean(),
}
for name, guess in {**naive, "RoaForecaster": forecast}.items():
    print(f"{name:<21} mean absolute error {np.abs(guess - future).mean():5.2f}")
print(f"score {model.score(sales):.2f}")

# %%
# One year is one sample. Score several, each time with a fit that has not seen what it forecasts.
# This is a *rolling origin*: the same test as before, with the end of the data moved back.

table = []
for end in (180, 192, 204, 216):
    fitted = RoaForecaster(
        steps=12, window=24, hidden_size=WIDTH, max_epochs=EPOCHS, random_state=0
    ).fit(sales[:end])
    truth, last = sales[end : end + 12], sales[end - 24 : end]
    seasonal = last[12:] + last[12:].mean() - last[:12].mean()
    table.append([np.abs(guess - truth).mean() for guess in (fitted.predict(), seasonal)])
print("mean absolute error over four years")
for name, error in zip(("RoaForecaster", "last season + growth"), np.mean(table, axis=0)):
    print(f"{name:<21} {error:.2f}")

# %%
figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
ax.plot(months[-60:], sales[-60:], color="gray", label="truth")
ax.plot(months[-12:], forecast, color="C3", label="forecast")
ax.plot(months[-12:], naive["last season + growth"], "--", color="C0", label="last season + growth")
ax.axvline(months[-12] - 0.5, color="lightgray")
ax.set(xlabel="month", ylabel="sales")
ax.legend()
figure.savefig("forecast.svg")

# %%
# ![The forecast of the last year beside the truth](forecast.svg)
#
# ## Inputs that are known ahead
#
# Prices, holidays, a planned campaign: pass what is known ahead as `exog`, for the T steps of the
# past in `fit`, and for the `steps` ahead in `predict`. Here every third month or so has a
# campaign, which no past value announces.

campaign = (random.random(240) < 0.3).astype(float)
pushed = sales + 40 * campaign
errors = {}
for name, known in (("without", None), ("with", campaign)):
    fitted = RoaForecaster(
        steps=12, window=24, hidden_size=WIDTH, max_epochs=EPOCHS, random_state=0
    )
    fitted.fit(pushed[:-12], exog=None if known is None else known[:-12])
    guess = fitted.predict(exog=None if known is None else known[-12:])
    errors[name] = np.abs(guess - pushed[-12:]).mean()
    print(f"{name} the campaign as exog: mean absolute error {errors[name]:.1f}")

# %%
# ## Next
#
# - If the naive forecasts win, use them, or an ARIMA model: [when not to use it](when_not.md).
# - Many series at once, missing values, exogenous inputs: [Estimators](../estimators.md#forecast).
# - To run a fitted network on live data: [Stream, export, deploy](deploy.md).
