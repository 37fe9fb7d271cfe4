"""The faces: command line and embedded session; text in, tables out."""
