"""Small worlds of this library's own, each of which makes the distinguishing piece of some published method matter."""
