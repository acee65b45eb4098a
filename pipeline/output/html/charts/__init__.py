"""Define the charts of the page: Vega-Lite specs, drawn by the browser."""
