# All external libraries. They are Debian packages (scripts/setup.sh installs them). attend-config.cmake.in and
# attend.pc.in repeat the dependencies of a static attend.
find_package(nlohmann_json 3.11 REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
# Images and audio, and the hash of their content.
pkg_check_modules(JPEG REQUIRED IMPORTED_TARGET libjpeg)
pkg_check_modules(PNG REQUIRED IMPORTED_TARGET libpng)
pkg_check_modules(WEBP REQUIRED IMPORTED_TARGET libwebp libwebpdemux)
pkg_check_modules(SNDFILE REQUIRED IMPORTED_TARGET sndfile)
pkg_check_modules(SOXR REQUIRED IMPORTED_TARGET soxr)
find_package(OpenSSL 3.0 REQUIRED)

if(ATTEND_CLI OR ATTEND_FUZZ)
  find_package(CLI11 2.1 REQUIRED)
  # attend serve: Beast and Asio (headers only).
  find_package(Boost 1.74 REQUIRED)
endif()
if(ATTEND_CLI)
  # attend chat: line editing in a terminal.
  pkg_check_modules(LIBEDIT REQUIRED IMPORTED_TARGET libedit)
endif()
if(ATTEND_TESTS)
  find_package(GTest 1.12 REQUIRED)
  find_package(rapidcheck REQUIRED)
  include(GoogleTest)
endif()
