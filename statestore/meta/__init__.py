"""Meta: epochs, barriers, catalog, vnode mapping and version log, as small objects in the bucket."""
