// Version of the headers; the same as the library's, which carries them.
#pragma once

#define WARPWAY_VERSION "0.1.0"
