"""Interactive views, each the moving twin of a static figure; ipywidgets loads when a view is made."""
