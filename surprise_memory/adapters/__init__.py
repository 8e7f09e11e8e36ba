"""Other people's loops: each adapter imports the bonus alone."""
