"""A page that shows what was trained: pictures, tables, videos, in one file that opens anywhere."""
