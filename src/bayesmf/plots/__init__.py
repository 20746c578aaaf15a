"""Pictures of a fit. matplotlib is optional and imported on use.

style     colours, saving, titles and legends
panels    what fills one Axes, here and in the pictures of a model
diagnose  files of `bayesmf diagnose --plots`
demo      the figure of `bayesmf demo`
"""
