# cmake -DINPUT=... -DOUTPUT=... -DSOURCE_DIR=... -DATTEND_CUDA=... -P BuildInfo.cmake
#
# Runs in every build, so that the hash matches the built sources; writes OUTPUT only if it changes.
execute_process(COMMAND git describe --always --dirty --exclude=* --abbrev=10 WORKING_DIRECTORY ${SOURCE_DIR}
  OUTPUT_VARIABLE git_hash OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  set(git_hash "unknown")
endif()
if(ATTEND_CUDA)
  set(has_cuda true)
else()
  set(has_cuda false)
endif()
configure_file(${INPUT} ${OUTPUT} @ONLY)
