"""Figures of a fit. matplotlib is optional and imported on use.

style   colours, saving, titles and legends
panels  panels that fill one Axes, and the files of `bayesmf diagnose --plots`
"""
