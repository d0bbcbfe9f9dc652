"""Every format that episodes can be read from and written to, one file each."""
