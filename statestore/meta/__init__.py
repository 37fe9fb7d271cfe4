"""Meta: epochs, barriers, catalog, vnode mapping, version log. The single source of truth, kept as small objects in the bucket."""
